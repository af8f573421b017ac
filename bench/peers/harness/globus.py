"""GridFTP's two commands, in the clear, or with GSI at both ends and an encrypted data channel."""

import functools
import os
import pathlib
from dataclasses import dataclass, field

import machine

PORT = 2811


@dataclass
class Ends:
    """A server, and a copy to it; both see these keys."""

    server: list
    copy: list
    receiver: str  # the server's address, to which a path is added
    keys: dict = field(default_factory=dict)


def ends(private):
    """Both commands, complete but for sizes of buffers and what is copied."""
    server = ["globus-gridftp-server", "-data-interface", machine.RECEIVER_IP, "-p", PORT,
              "-allow-root"]
    receiver = f"{machine.RECEIVER_IP}:{PORT}"
    if private:
        keys, own = grid_keys()
        copy = ["globus-url-copy", "-dcpriv", "-s", own]
        return Ends(server, copy, f"gsiftp://{receiver}", keys)
    return Ends([*server, "-aa", "-anonymous-user", "root"], ["globus-url-copy"],
                f"ftp://{receiver}")


@functools.cache
def grid_keys():
    """An authority of our own and one certificate, which both ends show."""
    directory = machine.directory("gtp-bench-gsi-")
    ca, own = "/O=bench/CN=authority", "/O=bench/CN=host"
    make = functools.partial(machine.run, "openssl")
    make("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", ca,
         "-keyout", f"{directory}/ca.key", "-out", f"{directory}/ca.pem")
    make("req", "-newkey", "rsa:2048", "-nodes", "-subj", own,
         "-keyout", f"{directory}/key.pem", "-out", f"{directory}/request.pem")
    make("x509", "-req", "-in", f"{directory}/request.pem", "-CA", f"{directory}/ca.pem",
         "-CAkey", f"{directory}/ca.key", "-CAcreateserial", "-days", "2",
         "-out", f"{directory}/cert.pem")
    os.chmod(f"{directory}/key.pem", 0o600)
    name = make("x509", "-in", f"{directory}/ca.pem", "-noout", "-hash")
    trusted = pathlib.Path(directory, "trusted")
    trusted.mkdir()
    trusted.joinpath(f"{name}.0").write_bytes(pathlib.Path(directory, "ca.pem").read_bytes())
    trusted.joinpath(f"{name}.signing_policy").write_text(
        f"access_id_CA X509 '{ca}'\npos_rights globus CA:sign\ncond_subjects globus '\"*\"'\n")
    pathlib.Path(directory, "gridmap").write_text(f'"{own}" root\n')
    return {
        "X509_CERT_DIR": str(trusted), "GRIDMAP": f"{directory}/gridmap",
        "X509_USER_CERT": f"{directory}/cert.pem", "X509_USER_KEY": f"{directory}/key.pem",
    }, own
