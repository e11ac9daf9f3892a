import re

import pytest

from pace_dspy.backends.addresses import check_address, hidden
from pace_dspy.backends.profiles import get_profile, identity, resolve_connection
from pace_dspy.errors import ConfigError

PORT = "has a port that is not a number from 1 to 65535"
BAD = [
    ("http://[::1", "cannot be read as an address"),
    ("localhost:8000", "is not an http:// or https:// address"),
    ("http://", "names no host"),
    ("http://:8000/v1", "names no host"),
    ("http://h:abc/v1", PORT),
    ("http://h:99999/v1", PORT),
    ("http://h:0/v1", PORT),
    ("http://ex ample/v1", "holds a space, line break or control character"),
    ("http://ex\tample/v1", "holds a space, line break or control character"),
    ("http://a..b/v1", "names a host that cannot exist"),
    ("http://<host>/v1", "names a host that cannot exist"),
]


@pytest.mark.parametrize(("address", "problem"), BAD)
def test_an_address_that_cannot_be_used_is_wrong_use(address: str, problem: str) -> None:
    message = f"backend openai-compatible: PACE_BASE_URL={address!r} {problem}; use one like http://localhost:8000/v1"
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$") as caught:
        resolve_connection(get_profile("openai-compatible"), {"PACE_MODEL": "m", "PACE_BASE_URL": address})
    assert caught.value.exit_code == 2
    with pytest.raises(ConfigError, match=re.escape(f"vllm: base_url={address!r} {problem}")):
        identity(get_profile("vllm", {"base_url": address, "model": "m"}))


@pytest.mark.parametrize("address", ["http://[::1]:8000/v1", "https://api.example.org", "http://my_host:1/v1/"])
def test_usable_addresses(address: str) -> None:
    check_address(address, "x", "KEY")


def test_credentials_of_a_bad_address_are_not_shown() -> None:
    with pytest.raises(ConfigError, match=re.escape("x='http://***@[::1' cannot be read")) as caught:
        check_address("http://me:canary@[::1", "x", "KEY")
    assert "canary" not in str(caught.value)
    assert hidden("http://h:abc/v1?key=canary") == "http://h:abc/v1"
    with pytest.raises(ConfigError, match="the server at h must hold no user, password or query; a key belongs into"):
        check_address("http://me:canary@h/v1", "x", "KEY")
