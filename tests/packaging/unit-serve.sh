#!/bin/sh
# SPDX-License-Identifier: MIT
# unit-serve.sh UNIT PENSTOCK: systemd accepts the unit of penstock serve, the service is hardened,
# the command has the unit's options, and it notifies systemd when it serves and when it stops.
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

if command -v systemd-analyze >/dev/null 2>&1; then
	sed "s|^ExecStart=[^ ]*|ExecStart=/bin/true|" "$unit" >"$base/penstock-serve@models.service"
	result verified "$(SYSTEMD_LOG_LEVEL=warning systemd-analyze verify --man=no \
		"$base/penstock-serve@models.service" 2>&1 | grep -F penstock)"
	# An error in the unit is detected.
	sed 's/^ProtectSystem=full/ProtectSystem=nonsense/' "$base/penstock-serve@models.service" \
		>"$base/wrong.service"
	result mistakes_are_found "$(systemd-analyze verify --man=no "$base/wrong.service" 2>&1 |
		grep -q "wrong.service.*nonsense" || echo "systemd-analyze says nothing of nonsense")"
else
	n=$((n + 1))
	echo "ok $n verified # SKIP systemd-analyze is not installed"
fi

result it_is_hardened "$(for line in NoNewPrivileges=yes ProtectSystem=full PrivateDevices=yes \
	PrivateTmp=yes ProtectKernelTunables=yes ProtectControlGroups=yes; do
	grep -qx "$line" "$unit" || echo "there is no $line"
done
grep -q '^CapabilityBoundingSet=' "$unit" || echo "there is no CapabilityBoundingSet=")"

options=$(sed -n 's/^ExecStart=//p' "$unit" | grep -o -e '--[a-z-][a-z-]*')
result options_are_there "$(for option in $options; do
	"$penstock" help serve | grep -q -e "$option" || echo "$option is no option of penstock serve"
done)"

result it_waits_for_the_service "$(grep -q '^Type=notify$' "$unit" || echo "it is not of Type=notify")"

# Receive the two messages instead of systemd.
mkdir "$base/root"
result states_are_told "$(python3 - "$penstock" "$base" <<'END' 2>&1
import os, signal, socket, subprocess, sys
penstock, base = sys.argv[1:]
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(f"{base}/notify")
s.settimeout(60)
with subprocess.Popen([penstock, "serve", "--root", f"{base}/root", "--listen", "127.0.0.1:0"],
                      env=os.environ | {"NOTIFY_SOCKET": f"{base}/notify"},
                      stderr=subprocess.DEVNULL) as p:
    first = s.recv(100)
    p.send_signal(signal.SIGTERM)
    second = s.recv(100)
if (first, second, p.returncode) != (b"READY=1", b"STOPPING=1", 0):
    print(first, second, p.returncode)
END
)"

echo "1..$n"
exit $failed
