"""What a user may run on a port: pages, streams, uploads and a WebSocket, with nothing but the standard library."""

import base64, hashlib, json, struct, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

PORT = int(sys.argv[1])
go = threading.Event()
received = []


class App(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, body, kind="text/plain", status=200, **headers):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        received.append(f"{self.command} {self.path}")
        url = urlsplit(self.path)
        route = getattr(self, "get_" + url.path.strip("/"), None)
        if route:
            return route(parse_qs(url.query))
        self.answer(f"hello from {self.path}".encode(), set_cookie="own=1")

    def get_headers(self, _):
        self.answer(json.dumps([list(pair) for pair in self.headers.items()]).encode(), "application/json")

    def get_received(self, _):
        self.answer(json.dumps(received).encode(), "application/json")

    def get_page(self, _):
        with open("page.html", "rb") as page:
            self.answer(page.read(), "text/html")

    def get_open(self, _):
        """For any page that asks, as many servers for development have it; and a script."""
        origin = self.headers.get("origin", "*")
        allow = {"access_control_allow_origin": origin, "access_control_allow_credentials": "true"}
        self.answer(b"window.stolen = 'a script'", "text/javascript", **allow)

    def get_redirect(self, _):
        self.answer(b"", status=302, location=f"http://localhost:{PORT}/there")

    def get_big(self, query):
        left = int(query["bytes"][0])
        self.send_response(200)
        self.send_header("content-length", str(left))
        self.end_headers()
        while left > 0:
            left -= self.wfile.write(b"x" * min(left, 65536))

    def get_go(self, _):
        go.set()
        self.answer(b"gone")

    def get_events(self, _):
        """The second event comes only when somebody who has seen the first says so."""
        go.clear()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(b"data: first\n\n")
        go.wait()
        self.wfile.write(b"data: second\n\n")
        self.close_connection = True

    def get_break(self, _):
        self.send_response(200)
        self.send_header("content-length", "1000")
        self.end_headers()
        self.wfile.write(b"only this")
        self.close_connection = True

    def get_ws(self, _):
        digest = hashlib.sha1((self.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode())
        self.send_response(101)
        self.send_header("upgrade", "websocket")
        self.send_header("connection", "Upgrade")
        self.send_header("sec-websocket-accept", base64.b64encode(digest.digest()).decode())
        self.end_headers()
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] & 15 == 8:
                break
            size = head[1] & 127
            if size == 126:
                (size,) = struct.unpack(">H", self.rfile.read(2))
            mask, data = self.rfile.read(4), self.rfile.read(size)
            plain = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
            extra = struct.pack(">BH", 126, size) if size > 125 else bytes([size])
            self.wfile.write(b"\x81" + extra + plain)
        self.close_connection = True

    def do_POST(self):
        received.append(f"{self.command} {self.path}")
        digest, left = hashlib.sha256(), int(self.headers.get("content-length", 0))
        size = left
        while left > 0:
            part = self.rfile.read(min(left, 65536))
            left -= len(part)
            digest.update(part)
        self.answer(json.dumps({"size": size, "sha256": digest.hexdigest()}).encode(), "application/json")


ThreadingHTTPServer(("127.0.0.1", PORT), App).serve_forever()
