# SPDX-License-Identifier: MIT
"""Signatures: of Amazon's examples, and compared with botocore for random requests."""
import os
import subprocess

from tap import Skip, case, eq, run

tool = subprocess.Popen([os.environ["SIGN"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def sign(method, path, query, headers, payload, date, region="us-east-1",
         key="AKIAIOSFODNN7EXAMPLE", secret=SECRET):
    """Return the encoded path, the query, and the Authorization header."""
    fields = [key, secret, method, path, payload, date, region, str(len(query))]
    fields += [text for pair in query for text in pair] + [str(len(headers))]
    fields += [text for pair in headers for text in pair]
    tool.stdin.write(b"".join(f.encode().hex().encode() + b"\n" for f in fields))
    tool.stdin.flush()
    return [tool.stdout.readline().decode().rstrip("\n") for _ in range(3)]


@case
def examples_of_amazon():
    """Examples of "Signature calculations for the Authorization header" in the documentation of S3.
    """
    host, date = ("Host", "examplebucket.s3.amazonaws.com"), "20130524T000000Z"
    common = [host, ("x-amz-content-sha256", EMPTY), ("x-amz-date", date)]
    rows = [
        ("/test.txt", [], [("Range", "bytes=0-9")],
         "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
        ("/", [("lifecycle", "")], [],
         "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ("/", [("prefix", "J"), ("max-keys", "2")], [],
         "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ]
    for path, query, headers, want in rows:
        eq(sign("GET", path, query, common + headers, EMPTY, date)[2].split("Signature=")[1], want)


@case
def equal_to_botocore():
    try:
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials
        from botocore.utils import percent_encode_sequence, percent_encode
        from hypothesis import HealthCheck, given, settings
        from hypothesis import strategies as st
    except ImportError as e:
        raise Skip(f"python3-botocore and python3-hypothesis ({e})") from None

    text = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"),
                   max_size=20)
    plain = st.text("abcXYZ 019-/.:;,=\t", max_size=12)
    names = st.from_regex(r"\Ax-amz-[a-zA-Z][a-z0-9-]{0,8}\Z")
    count = 2000 if os.environ.get("PST_SOAK") else 60

    @settings(max_examples=count, deadline=None, database=None,
              suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(["GET", "PUT", "POST", "DELETE"]), text,
           st.dictionaries(text.filter(bool), text, max_size=6),
           st.dictionaries(names.map(str.lower), plain, max_size=5), text.filter(bool))
    def same(method, key, query, headers, secret):
        secret = "".join(c for c in secret if ord(c) < 128) or "s"
        path = "/" + percent_encode(key, safe="/~")
        headers = {k: v for k, v in headers.items()
                   if k not in ("x-amz-date", "x-amz-content-sha256", "x-amzn-trace-id")}
        url = "https://examplebucket.s3.amazonaws.com" + path
        pairs = sorted(query.items())
        if pairs:
            url += "?" + percent_encode_sequence(pairs)
        request = AWSRequest(method=method, url=url, headers=headers)
        request.context["client_config"] = None
        request.context["payload_signing_enabled"] = False
        auth = S3SigV4Auth(Credentials("AKID", secret), "s3", "eu-west-1")
        auth.add_auth(request)
        date = request.headers["X-Amz-Date"]
        payload = request.headers["X-Amz-Content-SHA256"]
        mine = [("Host", "examplebucket.s3.amazonaws.com"), ("X-Amz-Date", date),
                ("X-Amz-Content-SHA256", payload)] + list(headers.items())
        got = sign(method, "/" + key, list(query.items()), mine, payload, date, "eu-west-1", "AKID",
                   secret)
        eq(got[0], path)
        eq(got[2], request.headers["Authorization"])

    same()


run()
