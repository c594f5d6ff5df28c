# SPDX-License-Identifier: MIT
"""An S3 server with faults on demand, on a thread of the test.

    server = Server()
    server.put("bucket", "key", b"bytes")
    server.fault("GET", "cut", after=1000)      # once; times=0: always
    environ.update(server.environ())

The server verifies each signature itself, and refuses what real servers refuse.
"""
import calendar
import contextlib
import hashlib
import hmac
import re
import threading
import time
import urllib.parse
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

KEY, SECRET, REGION = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "eu-test-1"
PART_MIN = 5 << 20


def quote(text, safe=""):
    return urllib.parse.quote(text, safe=safe + "-._~")


def signature(secret, method, path, query, headers, names, payload, date, region):
    pairs = sorted((quote(k), quote(v)) for k, v in query)
    lines = "".join(f"{n}:{' '.join(headers[n].split())}\n" for n in names)
    request = "\n".join([method, path, "&".join(f"{k}={v}" for k, v in pairs), lines,
                         ";".join(names), payload])
    scope = f"{date[:8]}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", date, scope,
                      hashlib.sha256(request.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for word in (date[:8], region, "s3", "aws4_request"):
        key = hmac.new(key, word.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


class Object:
    def __init__(self, data, etag=None, meta=()):
        self.data = data
        self.meta = dict(meta)  # headers x-amz-meta-*
        self.etag = etag or '"' + hashlib.md5(data).hexdigest() + '"'
        self.modified = time.time() - 60


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def date_time_string(self, timestamp=None):
        s3 = self.server.s3
        return formatdate(time.time() + (s3.clock if s3.tells_clock else 0), usegmt=True)

    # -------------------------------------------------------------- answers

    def answer(self, status, body=b"", headers=()):
        if self.body_fault and self.body_fault["kind"] == "lost":
            self.close_connection = True
            self.connection.close()
            return
        self.send_response(status)
        names = {k.lower() for k, _ in headers}
        for name, value in headers:
            self.send_header(name, value)
        if "content-length" not in names and status not in (204, 304):
            self.send_header("Content-Length", str(len(body)))
        self.send_header("x-amz-request-id", "REQ-1")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def error(self, status, code, headers=()):
        body = (f'<?xml version="1.0"?><Error><Code>{code}</Code>'
                f"<Message>{self.server.s3.message}</Message></Error>").encode()
        self.answer(status, body, headers)

    # ------------------------------------------------------------ signature

    def allowed(self):
        """Check the signature.  Return the error's name, or None."""
        s3, auth = self.server.s3, self.headers.get("Authorization", "")
        if s3.anonymous:
            return None
        m = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d+)/([^/]+)/s3/aws4_request, "
                         r"SignedHeaders=([^,]+), Signature=([0-9a-f]{64})", auth)
        if not m:
            return "AccessDenied"
        if m[1] != s3.key:
            return "InvalidAccessKeyId"
        if s3.token and self.headers.get("x-amz-security-token") != s3.token:
            return "ExpiredToken"
        date, payload = self.headers["x-amz-date"], self.headers["x-amz-content-sha256"]
        there = time.strptime(date, "%Y%m%dT%H%M%SZ")
        if abs(calendar.timegm(there) - (time.time() + s3.clock)) > 900:
            return "RequestTimeTooSkewed"
        if payload != "UNSIGNED-PAYLOAD" and payload != hashlib.sha256(self.body).hexdigest():
            return "XAmzContentSHA256Mismatch"
        names = m[4].split(";")
        want = signature(s3.secret, self.command, self.path.split("?")[0], self.query,
                         {k.lower(): v for k, v in self.headers.items()}, names, payload, date,
                         m[3])
        if "host" not in names or want != m[5]:
            return "SignatureDoesNotMatch"
        return None

    # --------------------------------------------------------------- faults

    def faulty(self):
        """Return True if a fault answered the request.  Faults of bodies are left to send_data().
        """
        self.body_fault = None
        f = self.server.s3.next_fault(self.command, self.path)
        if not f:
            return False
        kind = f["kind"]
        if "before" in f:
            f["before"]()
        if kind == "status":
            self.error(f["status"], f.get("code", "InternalError"), f.get("headers", ()))
        elif kind == "drop":
            self.close_connection = True
            self.connection.close()
        elif kind == "raw":
            self.wfile.write(f["bytes"])
            self.close_connection = True
        elif kind == "endless":
            self.wfile.write(f.get("bytes", b""))
            self.close_connection = True
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(f["again"])
        elif kind == "hang":
            f["until"].wait(60)
            self.close_connection = True
        elif kind == "call":
            f["function"]()
            return False
        else:
            self.body_fault = f
            return False
        return True

    def send_data(self, status, data, headers):
        f = self.body_fault
        if f and f["kind"] == "headers":
            headers = [h for h in headers if h[0] not in f["headers"]]
            headers += [(k, v) for k, v in f["headers"].items() if v is not None]
        if f and f["kind"] == "cut":
            self.send_response(status)
            for name, value in headers + [("Content-Length", str(len(data)))]:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data[:f["after"]])
            self.wfile.flush()
            self.close_connection = True
            return
        if f and f["kind"] == "short":
            data = data[:f["after"]]
        if f and f["kind"] == "long":
            data += b"more"
        self.answer(status, data, headers)

    # ------------------------------------------------------------- requests

    def handle_all(self):
        s3 = self.server.s3
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = self.path.split("?", 1)
        self.query = urllib.parse.parse_qsl(parts[1], True) if len(parts) == 2 else []
        q = dict(self.query)
        with s3.lock:
            s3.requests.append((self.command, self.path, dict(self.headers)))
        if self.faulty():
            return None
        wrong = self.allowed()
        if wrong:
            return self.error(403, wrong)
        self.meta = {k.lower(): v for k, v in self.headers.items()
                     if s3.keeps_meta and k.lower().startswith("x-amz-meta-")}
        if sum(len(k) + len(v) - len("x-amz-meta-") for k, v in self.meta.items()) > 2048:
            return self.error(400, "MetadataTooLarge")
        path = urllib.parse.unquote(parts[0])[len(s3.base):].lstrip("/")
        name, _, key = path.partition("/")
        bucket = s3.buckets.get(name)
        if bucket is None:
            return self.error(404, "NoSuchBucket")
        with s3.lock:
            return getattr(self, "do_" + self.command.lower())(bucket, key, q)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_all

    def do_get(self, bucket, key, q):
        if "list-type" in q:
            return self.list(bucket, q)
        o = bucket.get(key)
        if o is None:
            return self.error(404, "NoSuchKey")
        s3, size = self.server.s3, len(o.data)
        headers = [("ETag", o.etag), ("Last-Modified", formatdate(o.modified, usegmt=True))]
        headers += o.meta.items()
        match = self.headers.get("If-Match")
        if s3.if_match and match and match.strip('"') != o.etag.strip('"'):
            return self.error(412, "PreconditionFailed")
        m = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not m or not s3.ranges:
            return self.send_data(200, o.data, headers)
        first, last = int(m[1]), min(int(m[2]), size - 1)
        if first >= size:
            return self.error(416, "InvalidRange", [("Content-Range", f"bytes */{size}")])
        headers.append(("Content-Range", f"bytes {first}-{last}/{size}"))
        return self.send_data(s3.partial, o.data[first:last + 1], headers)

    do_head = do_get

    def publish(self, bucket, key, o):
        """Make an object visible.  Return False after answering with an error."""
        if self.headers.get("If-None-Match") == "*" and key in bucket:
            self.error(412, "PreconditionFailed")
            return False
        bucket[key] = o
        return True

    def do_put(self, bucket, key, q):
        s3 = self.server.s3
        if "uploadId" in q:
            upload = s3.uploads.get(q["uploadId"])
            if upload is None:
                return self.error(404, "NoSuchUpload")
            if not 1 <= int(q["partNumber"]) <= 10000:
                return self.error(400, "InvalidArgument")
            o = Object(self.body)
            upload[int(q["partNumber"])] = o
            return self.answer(200, b"", [("ETag", o.etag)])
        o = Object(self.body, meta=self.meta)
        if self.publish(bucket, key, o):
            self.answer(200, b"", [("ETag", o.etag)])
        return None

    def do_post(self, bucket, key, q):
        s3 = self.server.s3
        if "uploads" in q:
            name = f"upload/{len(s3.uploads) + s3.ended}&x"
            s3.uploads[name] = {}
            s3.metas[name] = self.meta
            escaped = name.replace("&", "&amp;")
            return self.answer(200, f"<R><UploadId>{escaped}</UploadId></R>".encode())
        upload = s3.uploads.get(q.get("uploadId"))
        if upload is None:
            return self.error(404, "NoSuchUpload")
        if s3.complete_error:
            s3.complete_error -= 1
            return self.answer(200, s3.complete_body)
        parts = re.findall(r"<Part><PartNumber>(\d+)</PartNumber><ETag>([^<]*)</ETag></Part>",
                           self.body.decode())
        numbers = [int(n) for n, _ in parts]
        if numbers != sorted(set(numbers)) or not parts:
            return self.error(400, "InvalidPartOrder")
        if any(int(n) not in upload or upload[int(n)].etag != e for n, e in parts):
            return self.error(400, "InvalidPart")
        if any(len(upload[n].data) < PART_MIN for n in numbers[:-1]):
            return self.error(400, "EntityTooSmall")
        data = b"".join(upload[n].data for n in numbers)
        etag = f'"{hashlib.md5(data).hexdigest()}-{len(numbers)}"'
        o = Object(data, etag, s3.metas[q["uploadId"]])
        if self.publish(bucket, key, o):
            del s3.uploads[q["uploadId"]]
            s3.ended += 1
            self.answer(200, (f"<CompleteMultipartUploadResult><ETag>{o.etag}</ETag>"
                              "</CompleteMultipartUploadResult>").encode())
        return None

    def do_delete(self, bucket, key, q):
        s3 = self.server.s3
        if "uploadId" in q:
            s3.ended += s3.uploads.pop(q["uploadId"], None) is not None
        else:
            bucket.pop(key, None)
        return self.answer(204)

    def list(self, bucket, q):
        prefix, delimiter = q.get("prefix", ""), q.get("delimiter")
        start, n = q.get("continuation-token", ""), min(int(q["max-keys"]), self.server.s3.page)
        rows, seen, encodes = [], set(), self.server.s3.encodes

        def shown(key):
            return encodes(key, "/") if encodes else escape(key)
        kind = "<EncodingType>url</EncodingType>" if encodes else ""
        for key in sorted(bucket):
            if not key.startswith(prefix):
                continue
            rest = key[len(prefix):]
            if delimiter and delimiter in rest:
                common = prefix + rest.split(delimiter)[0] + delimiter
                if common not in seen:
                    seen.add(common)
                    rows.append((common, None))
            else:
                rows.append((key, bucket[key]))
        rows = [r for r in rows if r[0] > start]
        out = ""
        for key, o in rows[:n]:
            if o is None:
                out += f"<CommonPrefixes><Prefix>{shown(key)}</Prefix></CommonPrefixes>"
            else:
                out += (f"<Contents><Key>{shown(key)}</Key>"
                        f"<LastModified>2026-01-02T03:04:05.000Z</LastModified>"
                        f"<ETag>{o.etag.replace(chr(34), '&quot;')}</ETag>"
                        f"<Size>{len(o.data)}</Size></Contents>")
        more = len(rows) > n
        token = f"<NextContinuationToken>{rows[n - 1][0]}</NextContinuationToken>" if more else ""
        self.answer(200, (f'<?xml version="1.0"?><ListBucketResult xmlns="x"><IsTruncated>'
                          f"{str(more).lower()}</IsTruncated>{kind}{token}{out}"
                          "</ListBucketResult>").encode())


class Server:
    def __init__(self):
        self.lock = threading.RLock()
        self.reset()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.http.handle_error = lambda *_: None     # clients may disconnect at any time
        self.http.s3 = self
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()

    def reset(self):
        self.buckets, self.uploads, self.faults, self.requests = {"bucket": {}}, {}, [], []
        self.metas = {}
        self.keeps_meta = True
        self.key, self.secret, self.token, self.clock = KEY, SECRET, None, 0
        self.tells_clock, self.base = False, ""
        self.anonymous, self.if_match, self.ranges = False, True, True
        self.partial = 206      # the status of a range; rclone's server says 200
        self.encodes = quote    # keys of listings; None: as they are, and the server says so
        self.page, self.ended, self.complete_error, self.message = 1000, 0, 0, "no"
        self.complete_body = b"  <Error><Code>InternalError</Code></Error>"

    def environ(self):
        return {"AWS_ENDPOINT_URL": self.url, "AWS_ACCESS_KEY_ID": KEY,
                "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION,
                "AWS_EC2_METADATA_DISABLED": "true"}

    def put(self, bucket, key, data, etag=None):
        with self.lock:
            self.buckets.setdefault(bucket, {})[key] = Object(data, etag)

    def fault(self, method, kind, times=1, match="", skip=0, **more):
        self.faults.append({"method": method, "kind": kind, "times": times, "match": match,
                            "skip": skip, "seen": 0, **more})

    def next_fault(self, method, path):
        with self.lock:
            for f in self.faults:
                if f["method"] != method or f["match"] not in path:
                    continue
                f["seen"] += 1
                if f["seen"] <= f["skip"]:
                    continue
                if f["times"] == 0 or f["seen"] - f["skip"] <= f["times"]:
                    return f
        return None
