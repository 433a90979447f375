"""Find the addresses of this machine."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from collections.abc import Iterator
from pathlib import Path

_IPV4_ROUTES = Path("/proc/net/fib_trie")
_IPV6_ADDRESSES = Path("/proc/net/if_inet6")
_LOCAL_ADDRESS = re.compile(r"\|-- (\S+)\n\s+/32 host LOCAL")


def local_addresses() -> set[str]:
    """Return the addresses under which other machines could reach this one.

    They are those of all network interfaces, without loopback and IPv6 addresses that are valid on
    one link only.
    """
    found = map(ipaddress.ip_address, {*_own_ipv4(), *_own_ipv6(), *_addresses_of_name()})
    return {str(each) for each in found if not each.is_loopback and not _is_link_only(each)}


def _is_link_only(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return address.version == 6 and address.is_link_local


def _own_ipv4() -> Iterator[str]:
    with contextlib.suppress(OSError):
        yield from _LOCAL_ADDRESS.findall(_IPV4_ROUTES.read_text())


def _own_ipv6() -> Iterator[str]:
    with contextlib.suppress(OSError):
        for line in _IPV6_ADDRESSES.read_text().splitlines():
            yield str(ipaddress.IPv6Address(bytes.fromhex(line.split()[0])))


def _addresses_of_name() -> Iterator[str]:
    """Yield the addresses of the host name, which is all there is without /proc."""
    with contextlib.suppress(OSError):
        for _, _, _, _, address in socket.getaddrinfo(socket.gethostname(), None):
            yield str(address[0]).partition("%")[0]
