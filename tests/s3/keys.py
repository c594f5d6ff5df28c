# SPDX-License-Identifier: MIT
"""Sources of keys, and which of them are trusted."""
import os
import subprocess
import sys
import threading
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from server import KEY, SECRET, Server
from tap import case, eq, file, run, true, work

server = Server()
CODE = """
import sys, penstock
try:
    with penstock.File("s3://bucket/key") as f:
        got = bytearray(2)
        f.read(got)
        print(got.decode())
except OSError as e:
    print(e.errno, e)
"""


class Service(BaseHTTPRequestHandler):
    """A key service: of a container, of the machine, and STS."""
    expires = datetime.now(timezone.utc) + timedelta(hours=1)
    asked = []
    token = "tok"

    def log_message(self, *args):
        pass

    def do_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        self.asked.append((self.command, self.path, body))
        when = self.expires.strftime("%Y-%m-%dT%H:%M:%SZ")
        keys = (f'{{"Code": "Success", "AccessKeyId": "{KEY}", '
                f'"SecretAccessKey": "{SECRET.replace("/", chr(92) + "/")}", '
                f'"Token": "{self.token}", '
                f'"Expiration": "{when}"}}')
        status, text = 200, ""
        if self.path == "/container":
            good = self.headers.get("Authorization") == "pass"
            status, text = (200, keys) if good else (401, "")
        elif self.path == "/latest/api/token":
            status, text = (200, "imds") if self.command == "PUT" else (405, "")
        elif self.headers.get("X-aws-ec2-metadata-token") == "imds":
            text = keys if self.path.endswith("/role") else "role\n"
        elif "AssumeRoleWithWebIdentity" in body and "WebIdentityToken=web%2Ftok" in body:
            text = (f"<R><Credentials><AccessKeyId>{KEY}</AccessKeyId><SessionToken>tok"
                    f"</SessionToken><SecretAccessKey>{SECRET}</SecretAccessKey>"
                    f"<Expiration>{when}</Expiration></Credentials></R>")
        else:
            status = 403
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_PUT = do_POST = do_any


service = ThreadingHTTPServer(("127.0.0.1", 0), Service)
service.daemon_threads = True
threading.Thread(target=service.serve_forever, args=(0.05,), daemon=True).start()
THERE = f"http://127.0.0.1:{service.server_address[1]}"


def opens(token=None, **variables):
    """Run a process with only these environment variables.  Return its output."""
    server.reset()
    server.token = token
    server.put("bucket", "key", b"ok")
    clean = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    clean.update({"AWS_ENDPOINT_URL": server.url, "AWS_EC2_METADATA_DISABLED": "true",
                  "HOME": work}, **variables)
    clean = {k: v for k, v in clean.items() if v is not None}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True,
                          check=False, env=clean, timeout=60)
    eq((done.returncode, done.stderr), (0, ""))
    return done.stdout.strip()


def says(text, *words):
    for word in words:
        true(word in text, f"'{word}' is not in '{text}'")


@case
def of_the_environment():
    both = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    eq(opens(**both), "ok")
    eq(opens("tok", AWS_SESSION_TOKEN="tok", **both), "ok")
    says(opens("tok", AWS_SESSION_TOKEN="other", **both), "13 ", "ExpiredToken")
    says(opens(AWS_ACCESS_KEY_ID=KEY), "22 ", "set both or neither")
    says(opens(AWS_SECRET_ACCESS_KEY=SECRET), "22 ", "set both or neither")
    says(opens(AWS_ACCESS_KEY_ID=KEY + "\r\nX: y", AWS_SECRET_ACCESS_KEY=SECRET), "22 ", "blank")
    says(opens(), "there are no keys", "PST_S3_ANONYMOUS=1")


@case
def of_profiles():
    path = file("credentials", f"""
# comment
[default]
aws_access_key_id = wrong
aws_secret_access_key=wrong
[other]
aws_access_key_id={KEY}
aws_secret_access_key = {SECRET}
""".encode())
    eq(opens(AWS_SHARED_CREDENTIALS_FILE=path, AWS_PROFILE="other"), "ok")
    says(opens(AWS_SHARED_CREDENTIALS_FILE=path), "13 ", "InvalidAccessKeyId")
    config = file("config", f"""
[profile mine]
region = eu-mine-1
endpoint_url = {server.url}
aws_access_key_id={KEY}
aws_secret_access_key = {SECRET}
s3 =
  aws_access_key_id = nested
""".encode())
    eq(opens(AWS_CONFIG_FILE=config, AWS_PROFILE="mine", AWS_ENDPOINT_URL=None), "ok")
    says(server.requests[-1][2]["Authorization"], "/eu-mine-1/s3/")
    says(opens(AWS_CONFIG_FILE=config, AWS_PROFILE="none"), "there are no keys", "profile none")


@case
def of_a_container():
    full = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{THERE}/container"}
    eq(opens("tok", AWS_CONTAINER_AUTHORIZATION_TOKEN="pass", **full), "ok")
    path = file("token", b"pass\n")
    eq(opens("tok", AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=path, **full), "ok")
    says(opens(AWS_CONTAINER_AUTHORIZATION_TOKEN="no", **full), "13 ", "HTTP 401")
    says(opens(AWS_CONTAINER_CREDENTIALS_FULL_URI="http://192.0.2.1/x"), "1 ", "clear text")


@case
def keys_that_expire():
    """Keys are fetched once for all ranges and files that they sign."""
    code = """
import sys, penstock
files = [penstock.File("s3://bucket/key") for _ in range(3)]
print("open", flush=True)
sys.stdin.readline()
for f in files:
    got = bytearray(f.size)
    print(f.read(got).nbytes)
"""
    content = b"x" * (40 << 20)
    server.reset()
    server.put("bucket", "key", content)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    Service.token = server.token = "tok"
    asked = len(Service.asked)
    with subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**clean, "AWS_ENDPOINT_URL": server.url, "HOME": work,
                 "AWS_CONTAINER_AUTHORIZATION_TOKEN": "pass",
                 "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{THERE}/container"}) as process:
        eq(process.stdout.readline(), "open\n")
        Service.token = server.token = "another"
        eq(process.communicate("\n", timeout=60)[0].split(), [str(len(content))] * 3)
    Service.token = "tok"
    eq(len(Service.asked) - asked, 2)


@case
def of_the_machine():
    eq(opens("tok", AWS_EC2_METADATA_DISABLED=None, AWS_EC2_METADATA_SERVICE_ENDPOINT=THERE), "ok")


@case
def of_a_web_identity():
    path = file("web", b"web/tok")
    eq(opens("tok", AWS_ROLE_ARN="arn:x", AWS_WEB_IDENTITY_TOKEN_FILE=path,
             AWS_ENDPOINT_URL_STS=THERE), "ok")
    says(opens(AWS_ROLE_ARN="arn:x", AWS_WEB_IDENTITY_TOKEN_FILE=f"{work}/none",
               AWS_ENDPOINT_URL_STS=THERE), "2 ", "cannot be read")


@case
def anonymous():
    server.reset()
    says(opens(PST_S3_ANONYMOUS="1"), "13 ", "403 AccessDenied")
    true(all("Authorization" not in h for _, _, h in server.requests))


@case
def regions_and_endpoints():
    both = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    says(opens(AWS_ENDPOINT_URL=None, **both), "22 ", "AWS_REGION")
    says(opens(AWS_ENDPOINT_URL="http://192.0.2.1", **both), "1 ", "PST_HTTP_PLAIN=1")
    says(opens(AWS_ENDPOINT_URL="ftp://x", **both), "22 ", "AWS_ENDPOINT_URL")
    says(opens(AWS_ENDPOINT_URL="https://user:hidden@x", **both), "22 ")
    true("hidden" not in opens(AWS_ENDPOINT_URL="https://user:hidden@x", **both))
    eq(opens(AWS_ENDPOINT_URL="http://192.0.2.1", AWS_ENDPOINT_URL_S3=server.url, **both), "ok")
    says(opens(AWS_REGION="a\r\nb", **both), "22 ", "region")


run()
