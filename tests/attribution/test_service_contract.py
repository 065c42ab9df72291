"""The service against its own OpenAPI description: what fits it is answered as it says, what does
not is refused.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks.faults.corpus import CORPUS
from hypothesis import HealthCheck, assume, given, settings

from support.attribution_service import Service, running_service
from support.waiting import patience

if TYPE_CHECKING:  # as what the tests use of it: 0.4 s in every worker that only collects
    import schemathesis
    from schemathesis.checks import CheckFunction

pytestmark = pytest.mark.xdist_group("attrsvc")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    database = tmp_path_factory.mktemp("contract") / "state.sqlite"
    with running_service(CORPUS, database, "--rate-limit", "0", "--no-token") as running:
        yield running


def is_a_long_poll(wait: object) -> bool:
    """It is right, and slow."""
    from aorta.attribution.service import LONGEST_WAIT

    try:
        return not isinstance(wait, bool) and 0 < float(str(wait)) <= LONGEST_WAIT
    except ValueError:
        return False  # and refused


@pytest.mark.parametrize("kind", ["positive", "negative"])
def test_every_operation_keeps_to_its_description(service: Service, kind: str) -> None:
    import schemathesis
    from schemathesis import GenerationMode
    from schemathesis.core.result import Ok
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    mode = GenerationMode(kind)
    description = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
    found = description.get_all_operations()
    operations = [result.ok() for result in found if isinstance(result, Ok)]
    for operation in operations:
        if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query):
            continue  # nothing about it can be wrong

        @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=mode))
        def keeps_to_it(case: "schemathesis.Case[Any]") -> None:
            # a longer address is refused by the server below, in its own words
            assume(len(f"{case.path_parameters}{case.query}") < 4_000)
            # of an id with `%90` in it, which is right, the client makes one that is not
            assume(mode is GenerationMode.NEGATIVE or "%EF%BF%BD" not in case.formatted_path)
            if is_a_long_poll((case.query or {}).get("wait")):
                case.query["wait"] = 0
            peer: list[CheckFunction] = (
                [positive_data_acceptance] if case.operation.path == "/logs" else []
            )
            case.call_and_validate(timeout=patience(60), excluded_checks=peer)

        keeps_to_it()
    assert len(operations) == 6


def test_the_description_names_both_wires(service: Service) -> None:
    with service.client() as client:
        paths = set(client.get("/openapi.json").json()["paths"])
    assert {"/v1/cycles", "/logs", "/healthz", "/metrics"} <= paths
