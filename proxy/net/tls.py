"""TLS contexts from the configuration: the certificates for clients, and the trust in brokers.

TLS 1.2 and 1.3, as far as `enabled_protocols` has them. Each side has a trust store of its own. A `TlsSide` holds the
context in force: a reload replaces it for new connections; existing ones keep theirs. The private key's password is
never logged.
`proxy.config.principals` maps a certificate's subject to a principal.
"""

import ssl
from pathlib import Path
from typing import ClassVar, Final

from msgspec.structs import replace

from proxy.config import ClusterTls, ListenerTls, PortTls
from proxy.config.principals import DEFAULT_RULES, MappingRules, expires_at, host_names, subject
from proxy.net.server_name import BrokerNames
from proxy.system.errors import ConfigError
from proxy.system.files import read

ANONYMOUS: Final = "ANONYMOUS"
_PEM_BYTES_MAX: Final = 4 * 1024 * 1024  # the system's whole trust store has a quarter of a megabyte
_ENCRYPTED: Final = b"ENCRYPTED"  # the first lines of PKCS#8 and of the older form both contain it
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsSide:
    """Sluice's TLS towards clients or brokers: the base class of both.

    Args:
        options: the TLS options of one table of the configuration.
        path: the key of that table, for error messages.

    Attributes:
        context: the TLS context of new connections; a reload replaces it.

    Raises:
        ConfigError: the files do not give a valid context.
    """

    WHAT: ClassVar = "certificates"

    def __init__(self, options: PortTls | ClusterTls, path: str) -> None:
        self.path = path
        self.files = options.files
        self._cert_file = options.cert_file
        self.reload()

    def reload(self) -> None:
        """Read the files, and use the new context from now on; may run in a thread.

        Raises:
            ConfigError: the files do not give a valid context; the one in force stays.
        """
        self.context = self.load()

    def load(self) -> ssl.SSLContext:
        """Read the files into a new context; may run in a thread.

        Raises:
            ConfigError: the files do not give a valid context.
        """
        raise NotImplementedError

    def expires_at(self) -> float | None:
        """Return when Sluice's own certificate expires, in seconds since the epoch; None if it has none here."""
        files = self.cert_files
        return min(filter(None, map(_expires_at, files)), default=None)

    @property
    def cert_files(self) -> tuple[Path, ...]:
        """The files of Sluice's own certificates here; empty without one."""
        return () if self._cert_file is None else (self._cert_file,)


class ServerTls(TlsSide):
    """The TLS context towards the clients of a port.

    Args:
        rules: the mapping rules for the principals of clients.
        names: the names by which clients choose a broker; None where the port decides.
    """

    def __init__(
        self, options: PortTls, path: str, rules: str = DEFAULT_RULES, names: BrokerNames | None = None
    ) -> None:
        self._options = options
        self._rules = MappingRules(rules)
        self._names = names
        super().__init__(options, path)

    def load(self) -> ssl.SSLContext:
        """Read the files into a new context, as `TlsSide.load`."""
        context = self._load(self._options)
        if self._names is not None:
            others: dict[str, ssl.SSLContext] = {}
            for file in self.cert_files[1:]:
                names, other = self._load_another(file)
                others = {**dict.fromkeys(names, other), **others}  # the first one has a name
            self._names.apply_to(context, others)
        return context

    @property
    def cert_files(self) -> tuple[Path, ...]:
        """The files of the port's certificates, the one for all other names first."""
        more = self._options.more_cert_files if isinstance(self._options, ListenerTls) else ()
        return (*super().cert_files, *more)

    def host_names(self) -> tuple[str, ...]:
        """Return the host names of all certificates of the port."""
        return tuple(name for file in self.cert_files for name in _host_names(file))

    def _load_another(self, file: Path) -> tuple[tuple[str, ...], ssl.SSLContext]:
        """Read a further certificate, with its key in the same file; return its host names and a context with it."""
        key = f"{self.path}.more_cert_files"
        try:
            context = self._load(replace(self._options, cert_file=file, key_file=file))
        except ConfigError as error:
            raise ConfigError(key, error.problem, str(file)) from None
        names = _host_names(file)
        if not names:
            raise ConfigError(key, "names no host, so no client would get it", str(file))
        return names, context

    def _load(self, options: PortTls) -> ssl.SSLContext:
        context = _context(ssl.PROTOCOL_TLS_SERVER, options, self.path)
        assert options.cert_file is not None, "the configuration is refused without it"
        _load_chain(context, self.path, options)
        context.verify_mode = _VERIFY[options.client_auth]
        if options.client_ca_file is not None:
            _load_trust(context, f"{self.path}.client_ca_file", options.client_ca_file)
        return context

    def user(self, sock: ssl.SSLSocket) -> str:
        """Return the principal's name of a client after its handshake; ANONYMOUS without a client certificate.

        Raises:
            NoMatchingRuleError: no principal mapping rule applies.
            CertificateError: the certificate cannot be read.
        """
        certificate = sock.getpeercert(binary_form=True)
        if not certificate:
            return ANONYMOUS
        return self._rules.name(subject(certificate))


class BrokerTls(TlsSide):
    """The TLS context towards brokers; it can have a certificate of Sluice, for brokers that ask for one."""

    def __init__(self, options: ClusterTls, path: str = "cluster.tls") -> None:
        self._options = options
        super().__init__(options, path)

    def load(self) -> ssl.SSLContext:
        """Read the files into a new context, as `TlsSide.load`."""
        options = self._options
        context = _context(ssl.PROTOCOL_TLS_CLIENT, options, self.path)
        context.check_hostname = options.verify_hostname
        if options.ca_file is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            _load_trust(context, f"{self.path}.ca_file", options.ca_file)
        if options.cert_file is not None:
            _load_chain(context, self.path, options)
        return context


def _context(protocol: int, options: PortTls | ClusterTls, path: str) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    versions = [_VERSIONS[name] for name in options.enabled_protocols]
    context.minimum_version = min(versions)
    if len({*versions}) < len(_VERSIONS):  # with both, MaxProtocol of the system's openssl.cnf applies
        context.maximum_version = max(versions)
    if options.ciphers:
        try:
            context.set_ciphers(options.ciphers)
        except (ssl.SSLError, ValueError):  # a zero character is a ValueError
            problem = "names no cipher of TLS 1.2 that OpenSSL has; `openssl ciphers -v` lists them"
            raise ConfigError(f"{path}.ciphers", problem, options.ciphers) from None
    # Renegotiation by a peer costs Sluice much and the peer little.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    return context


def _load_chain(context: ssl.SSLContext, path: str, options: PortTls | ClusterTls) -> None:
    cert_file, key_file = options.cert_file, options.key_file
    assert cert_file is not None, "asked for only where there is one"
    assert key_file is not None, "it is the certificate's file by default"
    _read(f"{path}.cert_file", cert_file)
    encrypted = _ENCRYPTED in _read(f"{path}.key_file", key_file)
    password = options.key_password
    if options.key_password_file is not None:
        where = f"{path}.key_password_file"
        password = _read(where, options.key_password_file).decode("utf-8", "replace").strip("\r\n")
    if encrypted and not password:
        problem = "is encrypted: key_password or key_password_file is needed"
        raise ConfigError(f"{path}.key_file", problem, str(key_file))
    try:
        # Always set, or OpenSSL would ask for it at the terminal.
        context.load_cert_chain(cert_file, key_file, password=password.encode)
    except ssl.SSLError as error:
        raise ConfigError(f"{path}.cert_file", _load_problem(error, encrypted), str(cert_file)) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}.cert_file", f"cannot be used: {error}", str(cert_file)) from None


def _load_problem(error: ssl.SSLError, encrypted: bool) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the key does not belong to this certificate"
    if encrypted:
        return "the key's password is wrong"
    return f"is not a certificate with its key in PEM: {error.reason or error}"


def _load_trust(context: ssl.SSLContext, path: str, file: Path) -> None:
    _read(path, file)
    try:
        context.load_verify_locations(file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ConfigError(path, f"holds no certificates in PEM: {reason}", str(file)) from None


def _read(path: str, file: Path) -> bytes:
    try:
        return read(file, _PEM_BYTES_MAX)
    except OSError as error:
        raise ConfigError(path, f"cannot be read: {error.strerror or error}", str(file)) from None


def _expires_at(file: Path) -> float | None:
    """Return when the first certificate of a file expires, in seconds since the epoch; None if that is unknown."""
    try:
        return expires_at(_first(file))
    except (OSError, ValueError):
        return None


def _host_names(file: Path) -> tuple[str, ...]:
    """Return the host names of the first certificate of a file; empty if they cannot be read."""
    try:
        return host_names(_first(file))
    except (OSError, ValueError):
        return ()


def _first(file: Path) -> bytes:
    """Return the first certificate of a file.

    Raises:
        ValueError: there is none.
        OSError: the file cannot be read.
    """
    text = read(file, _PEM_BYTES_MAX).decode("ascii", "replace")
    begin = text.index("-----BEGIN CERTIFICATE-----")
    end = text.index("-----END CERTIFICATE-----", begin)
    return ssl.PEM_cert_to_DER_cert(text[begin:end] + "-----END CERTIFICATE-----")
