"""Certificates for tests, made by `openssl` when they are needed: an authority, and certificates that it signs.

    authority = Authority.make(directory, "clients")
    alice = authority.issue("alice", "/O=Example/CN=alice")
    context.load_cert_chain(alice.cert_file, alice.key_file)

They are as strict as Python 3.13 wants them (VERIFY_X509_STRICT). Keys are on P-256: made in a millisecond. Nothing of
this is of any worth, so nothing is encrypted unless a test asks.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
_LOOPBACK: Final = "subjectAltName=IP:127.0.0.1,DNS:localhost"
# A certificate that ended before this test began.
_LONG_AGO: Final = ("20200101000000Z", "20200102000000Z")


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its key, each in a PEM file, and both in one as Kafka's PEM key stores want them."""

    cert_file: Path
    key_file: Path
    store_file: Path


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority."""

    directory: Path
    cert_file: Path
    key_file: Path

    @classmethod
    def make(cls, directory: Path, name: str = "authority") -> Self:
        """Make an authority of its own."""
        made = cls(directory, directory / f"{name}.pem", directory / f"{name}.key")
        _openssl(
            *("req", "-x509", *_KEY, "-nodes", "-days", "30", "-subj", f"/CN={name}"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
            *("-keyout", str(made.key_file), "-out", str(made.cert_file)),
        )
        return made

    def issue(
        self,
        name: str,
        subject: str = "/CN=127.0.0.1",
        *,
        names: str = _LOOPBACK,
        expired: bool = False,
        password: str = "",
        rsa_bits: int = 0,
    ) -> Certificate:
        """Sign a certificate; `name` is that of the files, `names` what a client compares with a host."""
        base = self.directory / name
        key = base.with_suffix(".key")
        kind = ("-newkey", f"rsa:{rsa_bits}") if rsa_bits else _KEY
        protect = ("-passout", f"pass:{password}") if password else ("-nodes",)
        request = base.with_suffix(".csr")
        _openssl("req", *kind, *protect, "-subj", subject, "-keyout", str(key), "-out", str(request))
        extensions = base.with_suffix(".ext")
        extensions.write_text(f"{names}\nauthorityKeyIdentifier=keyid\n")
        signed = base.with_suffix(".pem")
        if expired:
            self._sign_expired(request, extensions, signed)
        else:
            _openssl(
                *("x509", "-req", "-in", str(request)),
                *("-CA", str(self.cert_file), "-CAkey", str(self.key_file)),
                *("-CAcreateserial", "-days", "30", "-extfile", str(extensions), "-out", str(signed)),
            )
        store = base.with_suffix(".store.pem")
        store.write_text(key.read_text() + signed.read_text())
        return Certificate(signed, key, store)

    def _sign_expired(self, request: Path, extensions: Path, signed: Path) -> None:
        """`openssl x509` can not name days: this is what `openssl ca` is for."""
        base = self.directory / "ca"
        base.mkdir(exist_ok=True)
        (base / "index.txt").write_text("")
        (base / "serial").write_text("01\n")
        (base / "ca.cnf").write_text(
            f"[ca]\ndefault_ca=own\n[own]\ndatabase={base}/index.txt\nserial={base}/serial\nnew_certs_dir={base}\n"
            "default_md=sha256\npolicy=any\n[any]\ncommonName=optional\norganizationName=optional\n"
        )
        _openssl(
            *("ca", "-batch", "-config", str(base / "ca.cnf"), "-in", str(request), "-out", str(signed)),
            *("-notext", "-cert", str(self.cert_file), "-keyfile", str(self.key_file)),
            *("-startdate", _LONG_AGO[0], "-enddate", _LONG_AGO[1], "-extfile", str(extensions)),
        )


def _openssl(*words: str) -> None:
    done = subprocess.run(["openssl", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"openssl {' '.join(words)}\n{done.stderr}")
