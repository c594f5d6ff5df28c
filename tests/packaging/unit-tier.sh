#!/bin/sh
# SPDX-License-Identifier: MIT
# unit-tier.sh UNIT PENSTOCK: systemd accepts the unit of penstock tier run, the service is
# hardened, its capabilities suffice to move a file with all attributes, and its command ends
# cleanly when systemd stops it.
set -u
unit=$1
penstock=$2
base=$(mktemp -d) || exit 1
trap 'rm -rf "$base"' EXIT
export PST_TIER_DIR="$base/state"

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

skip() { # NAME WHAT
	n=$((n + 1))
	echo "ok $n $1 # SKIP $2"
}

if command -v systemd-analyze >/dev/null 2>&1; then
	sed "s|^ExecStart=[^ ]*|ExecStart=/bin/true|" "$unit" >"$base/penstock-tier@models.service"
	result verified "$(SYSTEMD_LOG_LEVEL=warning systemd-analyze verify --man=no \
		"$base/penstock-tier@models.service" 2>&1 | grep -F penstock)"
else
	skip verified "systemd-analyze is not installed"
fi

result it_is_hardened "$(for line in NoNewPrivileges=yes ProtectSystem=full PrivateDevices=yes \
	PrivateNetwork=yes ProtectKernelTunables=yes ProtectKernelModules=yes \
	ProtectControlGroups=yes; do
	grep -qx "$line" "$unit" || echo "there is no $line"
done)"

# Run the unit's command with the capabilities that the unit leaves.
for class in nvme ssd hdd; do
	mkdir "$base/$class"
done
"$penstock" tier init models --same-filesystem --quota nvme:4k --nvme "$base/nvme" \
	--ssd "$base/ssd" --hdd "$base/hdd" || exit 1
# shellcheck disable=SC2046
set -- $(sed -n 's/^ExecStart=[^ ]* //p' "$unit" | sed 's/%i/models/; s/\$OPTIONS/--every 1/')
capabilities=$(sed -n 's/^CapabilityBoundingSet=//p' "$unit" | tr ' ' '\n' |
	sed 's/^CAP_//' | tr 'A-Z\n' 'a-z,' | sed 's/,$//; s/,/,+/g')

# Call this in the background: its process becomes the command.
command_line() {
	if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null 2>&1; then
		exec setpriv --inh-caps=-all --bounding-set="-all,+$capabilities" "$@"
	else
		exec "$@"
	fi
}

names=user.a
[ "$(id -u)" != 0 ] || names="$names trusted.a security.capability"
python3 - "$base/nvme/f" <<'END'
import os, sys
with open(sys.argv[1], "wb") as f:
    f.write(bytes(100000))
root = os.geteuid() == 0
os.chmod(sys.argv[1], 0o4751)
if root:
    os.chown(sys.argv[1], 12, 34)
    os.chmod(sys.argv[1], 0o4751)
for name, value in (("user.a", b"1"), ("trusted.a", b"2"),
                    ("security.capability", bytes.fromhex("0100000200200000" + "00" * 12))):
    if root or name == "user.a":
        try:
            os.setxattr(sys.argv[1], name, value)
        except OSError:
            pass
END
told() { # FILE
	python3 -c 'import os, sys; s = os.stat(sys.argv[1])
print(s.st_uid, s.st_gid, oct(s.st_mode), sorted(os.listxattr(sys.argv[1])))' "$1"
}
before=$(told "$base/nvme/f")
command_line "$penstock" "$@" >"$base/out" 2>&1 &
pid=$!
tries=0
while [ -e "$base/nvme/f" ] && [ $tries -lt 600 ] && kill -0 $pid 2>/dev/null; do
	tries=$((tries + 1))
	sleep 0.1
done
kill $pid
wait $pid 2>/dev/null
status=$?
after=$(told "$base/ssd/f" 2>&1)
result a_file_moves_with_all_it_has "$([ "$before" = "$after" ] || {
	echo "it was $before and is $after"
	cat "$base/out"
})"
result it_ends_well "$(grep -qx "SuccessExitStatus=$status" "$unit" ||
	echo "the status $status is not what the unit takes for a good end"
grep -i cannot "$base/out")"

echo "1..$n"
exit $failed
