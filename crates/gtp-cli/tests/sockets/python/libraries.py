"""Whole protocols through Python's own libraries: HTTP and FTP, in passive and active mode.

A library combines many calls in its own way. This module must not try a call alone; the other
modules do.
"""

import socket

from common import background, case


@case()
def http():
    import http.client
    import http.server

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            content = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[::-1])

        def log_message(self, *words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    background(server.serve_forever)
    connection = http.client.HTTPConnection(*server.server_address)
    said = []
    for body in (b"first", b"s" * 100_000):
        connection.request("POST", "/", body)
        answer = connection.getresponse()
        said.append((answer.status, answer.read() == body[::-1]))
    server.shutdown()
    server.server_close()
    return said


class Ftp:
    """A server of one file, for one client, in passive or active mode."""

    def __init__(self, host):
        self.host = host
        self.heard = socket.create_server((host, 0), family=(
            socket.AF_INET6 if ":" in host else socket.AF_INET))
        background(self.serve)

    def serve(self):
        control, _ = self.heard.accept()
        words = control.makefile("rw", newline="")
        self.data = None

        def say(text):
            words.write(text + "\r\n")
            words.flush()

        say("220 here")
        for line in words:
            verb, _, rest = line.strip().partition(" ")
            if verb == "PASV":
                self.passive = socket.create_server((control.getsockname()[0], 0))
                host, port = self.passive.getsockname()
                parts = host.split(".") + [str(port >> 8), str(port & 255)]
                say(f"227 ({','.join(parts)})")
                self.data = lambda: self.passive.accept()[0]
            elif verb == "EPSV":
                self.passive = socket.create_server(
                    (control.getsockname()[0], 0), family=self.heard.family)
                say(f"229 (|||{self.passive.getsockname()[1]}|)")
                self.data = lambda: self.passive.accept()[0]
            elif verb == "PORT":
                parts = rest.split(",")
                where = (".".join(parts[:4]), int(parts[4]) * 256 + int(parts[5]))
                self.data = lambda: socket.create_connection(where)
                say("200 ok")
            elif verb == "EPRT":
                _, _, host, port, _ = rest.split("|")
                self.data = lambda: socket.create_connection((host, int(port)))
                say("200 ok")
            elif verb == "RETR":
                say("150 comes")
                with self.data() as data:
                    data.sendall(b"content " * 1000)
                say("226 was it")
            elif verb == "QUIT":
                say("221 gone")
                break
            else:
                say("230 yes" if verb in ("USER", "PASS") else "200 ok")


@case("passive", "active", "passive6", "active6")
def ftp(mode):
    import ftplib

    server = Ftp("::1" if mode.endswith("6") else "127.0.0.1")
    client = ftplib.FTP()
    client.connect(*server.heard.getsockname()[:2])
    client.login()
    client.set_pasv(mode.startswith("passive"))
    content = []
    client.retrbinary("RETR file", content.append)
    client.quit()
    return len(b"".join(content))
