"""Which addresses of the web may be read: public ones, and private ones that the user names."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from agent_runtime_config import Settings

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

LONGEST_URL = 4000
MOST_PORT = 65_535
PORTS = (80, 443)
"""The ports below 1024 that may be used; others belong to mail, shells, databases."""

# Networks that carry IPv4 addresses inside of their own.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")


@dataclass(frozen=True, slots=True)
class WebPolicy:
    """What may be read.

    Attributes:
        domains: patterns of hosts (`docs.python.org`, `*.example.com`); empty for all public ones.
        private: hosts, with or without a port, that may have a private address.
    """

    domains: tuple[str, ...] = ()
    private: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> WebPolicy:
        """Return what a runtime's settings say."""
        return cls(_hosts(settings.web_domains), _hosts(settings.web_private_hosts))

    def over(self, settings: WebPolicy) -> WebPolicy:
        """Return what a program chose, and the settings where it chose nothing."""
        return WebPolicy(self.domains or settings.domains, self.private or settings.private)

    def is_private(self, host: str, port: int) -> bool:
        """Return whether a host may have a private address."""
        return host in self.private or f"{_bracketed(host)}:{port}" in self.private

    def problem(self, url: str) -> str | None:
        """Return why a canonical URL may not be read; None if it may, as far as its name shows."""
        parts = urlsplit(url)
        host, port = parts.hostname or "", port_of(url)
        if self.is_private(host, port):
            return None
        if self.domains and not any(fnmatchcase(host, one) for one in self.domains):
            return f"{host} is not among the hosts that may be read: {', '.join(self.domains)}."
        if port < 1024 and port not in PORTS:
            return f"Port {port} is not one of web servers."
        return None


def _hosts(text: str) -> tuple[str, ...]:
    return tuple(one.strip().lower() for one in text.split(",") if one.strip())


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def port_of(url: str) -> int:
    """Return the port of a canonical URL."""
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def canonical_url(text: str) -> str:
    """Return a URL in the one form in which it is judged, shown and sent.

    Raises:
        ValueError: it is not a URL of the web, or holds credentials.
    """
    import httpx2

    text = text.strip()
    if "://" not in text.partition("?")[0]:
        text = f"https://{text}"
    if len(text) > LONGEST_URL or not text.isprintable() or " " in text or "\\" in text:
        raise ValueError(f"is not a URL of at most {LONGEST_URL} characters without spaces")
    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, ValueError):
        raise ValueError("is not a URL") from None
    if url.scheme not in ("http", "https"):
        raise ValueError("must begin with https:// or http://")
    if url.userinfo:
        raise ValueError("must not hold a user or a password")
    # `example.com.` is the same host, and would pass by a rule for `example.com`.
    host = url.raw_host.decode("ascii").lower().rstrip(".")
    if not host:
        raise ValueError("names no host")
    if url.port is not None and not 0 < url.port <= MOST_PORT:
        raise ValueError(f"has a port that is not 1 to {MOST_PORT}")
    usual = url.port in (None, 443 if url.scheme == "https" else 80)
    port = "" if usual else f":{url.port}"
    return f"{url.scheme}://{_bracketed(host)}{port}{url.raw_path.decode('ascii')}"


def is_public(address: str) -> bool:
    """Return whether an IP address is one of the public internet; False for what is no address."""
    try:
        return _is_public(ipaddress.ip_address(address))
    except ValueError:
        return False


def _is_public(address: IPAddress) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _is_public(inner)
        # A Teredo address leads to whatever its server says.
        if address not in _GLOBAL_UNICAST or address.teredo is not None:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved)
