#!/bin/sh
# SPDX-License-Identifier: MIT
# unit.sh UNIT PENSTOCK: systemd accepts the unit, the command has the unit's options, and the unit
# creates no mount namespace, which would hide the mount from other processes.
set -u
unit=$1
penstock=$2
base=$(mktemp -d) || exit 1
trap 'rm -rf "$base"' EXIT

n=0
failed=0
result() { # NAME TEXT
	n=$((n + 1))
	if [ -z "$2" ]; then
		echo "ok $n $1"
	else
		echo "not ok $n $1"
		echo "$2" | sed 's/^/# /'
		failed=1
	fi
}

# Replace programs of the unit that are not installed.
verify() {
	sed "s|^ExecStart=[^ ]*|ExecStart=/bin/true|" "$unit" >"$base/penstock-mount@.service"
	cp "$base/penstock-mount@.service" "$base/penstock-mount@3fs-kv.service"
	# Only errors about this unit count, not about others of the machine.
	SYSTEMD_LOG_LEVEL=warning systemd-analyze verify --man=no "$base/penstock-mount@3fs-kv.service" \
		2>&1 | grep -F penstock
}

if command -v systemd-analyze >/dev/null 2>&1; then
	result verified "$(verify)"
	# An error in the unit is detected.
	sed 's/^KillMode=mixed/KillMode=nonsense/' "$unit" >"$base/wrong.service"
	if systemd-analyze verify --man=no "$base/wrong.service" 2>&1 | grep -q "wrong.service.*nonsense"; then
		result mistakes_are_found ""
	else
		result mistakes_are_found "systemd-analyze says nothing of KillMode=nonsense"
	fi
else
	n=$((n + 1))
	echo "ok $n verified # SKIP systemd-analyze is not installed"
fi

# The unit in the manual, for a source that systemd mounts later.
page=$(dirname "$0")/../../man/penstock-mount.8
dropin() {
	sed -n '/^\[Unit\]$/,/^\.Ed$/p' "$page" | grep -v '^\.Ed$'
}

verify_dropin() { # TEXT
	mkdir -p "$base/penstock-mount@3fs-kv.service.d"
	echo "$1" >"$base/penstock-mount@3fs-kv.service.d/source.conf"
	verify
	rm -r "$base/penstock-mount@3fs-kv.service.d"
}

if command -v systemd-analyze >/dev/null 2>&1; then
	result dropin_names_the_source "$(dropin | grep -qx 'RequiresMountsFor=/nvme/kv' ||
		echo "$page has no drop-in with RequiresMountsFor=/nvme/kv")"
	result dropin_is_verified "$(verify_dropin "$(dropin)")"
	result mistakes_in_a_dropin_are_found "$(verify_dropin "$(dropin | sed s,=/,=,)" |
		grep -q 'source.conf.*nvme/kv' || echo "systemd-analyze says nothing of a relative path")"
else
	n=$((n + 1))
	echo "ok $n dropin_is_verified # SKIP systemd-analyze is not installed"
fi

generator=/usr/lib/systemd/system-generators/systemd-fstab-generator
if [ -x $generator ]; then
	grep '^/nvme/kv ' "$page" >"$base/fstab"
	mkdir "$base/units"
	SYSTEMD_FSTAB=$base/fstab SYSTEMD_LOG_LEVEL=err $generator "$base/units" "$base/units" "$base/units"
	result line_of_fstab_waits_for_the_source "$(for line in RequiresMountsFor=/nvme/kv Where=/3fs/kv Type=penstock; do
		grep -qx "$line" "$base/units/3fs-kv.mount" || echo "systemd makes no unit with $line of it"
	done)"
else
	n=$((n + 1))
	echo "ok $n line_of_fstab_waits_for_the_source # SKIP systemd-fstab-generator is not installed"
fi

# systemd.exec(5): these options create a mount namespace.
own="Private[A-Z][a-z]*|Protect[A-Za-z]*|MountFlags|MountAPIVFS|Root[A-Z][A-Za-z]*|Bind[A-Za-z]*Paths"
own="$own|Read(Only|Write)Paths|InaccessiblePaths|TemporaryFileSystem|DynamicUser"
result mount_is_seen "$(grep -nE "^($own)=" "$unit")"

# The command has the options that the unit uses.
options=$(sed -n 's/^ExecStart=//p' "$unit" | grep -o -e '--[a-z-][a-z-]*')
result options_are_there "$(for option in $options; do
	"$penstock" help mount | grep -q -e "$option" || echo "$option is no option of penstock mount"
done)"
result it_waits_for_the_mount "$(grep -q '^Type=notify$' "$unit" || echo "it is not of Type=notify")"

echo "1..$n"
exit $failed
