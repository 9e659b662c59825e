"""The public face of the package."""

import floe


def test_public_names_are_exactly_these_and_exist() -> None:
    assert floe.__all__ == ["__version__", "configure", "jar"]
    assert all(hasattr(floe, name) for name in floe.__all__)
