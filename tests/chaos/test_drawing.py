"""What a chaos run draws: the same for the same seed, and only from what was asked for."""

from __future__ import annotations

from chaos.drawing import Blows, campaign_faults
from chaos.events import Fault

_MANY = 300


def test_seed_decides_all_blows() -> None:
    """A run that failed could not be repeated."""
    first, second = (Blows("7-stream", set(Fault)) for _ in range(2))

    assert [first.next() for _ in range(_MANY)] == [second.next() for _ in range(_MANY)]


def test_other_seed_draws_others() -> None:
    """Every run would try the same."""
    first, second = (Blows(f"{seed}-stream", set(Fault)) for seed in (7, 8))

    assert [first.next() for _ in range(_MANY)] != [second.next() for _ in range(_MANY)]


def test_only_wanted_faults_are_drawn() -> None:
    """A run could not be narrowed down to the fault that broke something."""
    blows = Blows("7", {Fault.CLOCK, Fault.EXPIRY})
    drawn = [blows.next() for _ in range(_MANY)]

    assert {blow.fault for blow in drawn if blow is not None} == {Fault.CLOCK}
    assert campaign_faults("7", {Fault.CLOCK, Fault.EXPIRY}) == [Fault.EXPIRY]


def test_every_blow_is_drawn_in_time() -> None:
    """A kind of fault would never be tried."""
    blows = Blows("7", set(Fault))
    drawn = {blow.fault for blow in (blows.next() for _ in range(_MANY)) if blow is not None}

    assert drawn | set(campaign_faults("7", set(Fault))) == set(Fault)
