"""The smallest rights that the pages in docs/catalogs name: they are enough, and none of them is too many.

moto checks the actions of an IAM policy, not its resources.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import psycopg2
import pytest
from sqlalchemy.engine import make_url
from support.services.catalogs import Moto, serve_moto
from support.services.servers import ACCESS_KEY, REGION, SECRET_KEY, CatalogService, ObjectStore
from support.tables.sink import Sink

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import IcebergSinkError
from iceberg_ds.options.parse import parse_options

PAGES = Path(__file__).parents[3] / "docs" / "catalogs"
_WRITER, _PASSWORD = "writer", "writer-password"
_GRANT = re.compile(r"GRANT ([A-Z, ]+) ON (\w+) TO writer;")
ACTIONS = ("glue:GetDatabase", "glue:CreateDatabase", "glue:GetTable", "glue:CreateTable", "glue:UpdateTable")


def blocks(page: str, language: str) -> list[str]:
    """Return the blocks of code of a page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (PAGES / page).read_text(), re.DOTALL | re.MULTILINE)


def write_twice(properties: Mapping[str, str], namespace: str) -> list[int]:
    """Create a namespace and a table in it, append to it, and return its ids."""
    options = {f"catalog.{key}": value for key, value in properties.items()}
    parsed = parse_options({"catalog": "lake", **options, "table": f"{namespace}.t"})
    sink = Sink(catalog=connect(catalog_settings(parsed)), options=parsed)
    sink.append(1)
    sink.append(2)
    return sink.ids()


class Database:
    """A database of its own on the PostgreSQL of the tests, and a writer in it without any right."""

    def __init__(self, service: CatalogService) -> None:
        self._service = service
        self._owner = make_url(service.properties["uri"])
        self.run("postgres", f"CREATE ROLE {_WRITER} LOGIN PASSWORD '{_PASSWORD}'", "CREATE DATABASE rights")

    def run(self, database: str, *statements: str) -> None:
        """Run statements as the owner, each for itself."""
        url = self._owner.set(database=database, drivername="postgresql")
        with closing(psycopg2.connect(url.render_as_string(hide_password=False))) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)

    def properties(self, user: str = _WRITER, password: str = _PASSWORD) -> dict[str, str]:
        """Return PyIceberg's properties of the writer."""
        url = self._owner.set(username=user, password=password, database="rights")
        return {**self._service.properties, "uri": url.render_as_string(hide_password=False)}

    def close(self) -> None:
        """Remove database and writer."""
        self.run("postgres", "DROP DATABASE rights WITH (FORCE)", f"DROP ROLE {_WRITER}")


@pytest.fixture(scope="module")
def database(postgres: CatalogService) -> Iterator[Database]:
    """Return a database in which the page's statements have been run."""
    made = Database(postgres)
    made.run("rights", *blocks("sql.md", "sql"))
    yield made
    made.close()


def grants() -> list[tuple[str, str]]:
    """Return each right that the page grants, and on which table."""
    text = "".join(blocks("sql.md", "sql"))
    return [(right, table) for rights, table in _GRANT.findall(text) for right in rights.split(", ")]


def test_rights_that_sql_md_names_are_enough(database: Database) -> None:
    """A user would have to give the writer more than it needs, or find out right by right what it does."""
    assert write_twice(database.properties(), "enough") == [1, 2]


@pytest.mark.parametrize(("right", "table"), grants())
def test_each_right_that_sql_md_names_is_needed(database: Database, right: str, table: str) -> None:
    """The page would ask for rights that nobody needs."""
    database.run("rights", f"REVOKE {right} ON {table} FROM {_WRITER}")
    try:
        with pytest.raises(IcebergSinkError, match="permission denied"):
            write_twice(database.properties(), f"without_{right}_{table}".lower())
    finally:
        database.run("rights", f"GRANT {right} ON {table} TO {_WRITER}")


@pytest.fixture(scope="module")
def strict_moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    """Return a moto that asks for rights, with a user for the page's policy and one for each action left out."""
    with serve_moto(tmp_path_factory.mktemp("strict-moto")) as moto:
        yield moto


@pytest.fixture(scope="module")
def users(strict_moto: Moto) -> dict[str, dict[str, str]]:
    """Return the keys of users by the action that they lack, empty for the one that lacks none."""
    policy = json.loads(blocks("glue.md", "json")[0])
    iam = boto3.client(
        "iam",
        endpoint_url=strict_moto.endpoint,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
    )
    made = {action: _make_user(iam, f"user-{number}", policy, action) for number, action in enumerate(("", *ACTIONS))}
    from_now_on = urllib.request.Request(  # noqa: S310  # an address of ours
        f"{strict_moto.endpoint}/moto-api/reset-auth", data=b"0", headers={"Content-Type": "text/plain"}
    )
    urllib.request.urlopen(from_now_on).close()  # noqa: S310  # likewise
    return made


def _make_user(iam: Any, name: str, policy: dict[str, Any], without: str) -> dict[str, str]:
    """Make a user with the policy, one action of it left out, and return its keys."""
    (statement,) = policy["Statement"]
    actions = [action for action in statement["Action"] if action != without]
    document = {**policy, "Statement": [{**statement, "Action": actions, "Resource": "*"}]}
    iam.create_user(UserName=name)
    iam.put_user_policy(UserName=name, PolicyName="glue", PolicyDocument=json.dumps(document))
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return {"glue.access-key-id": key["AccessKeyId"], "glue.secret-access-key": key["SecretAccessKey"]}


@pytest.mark.parametrize("without", ["", *ACTIONS])
def test_actions_that_glue_md_names_are_enough_and_each_is_needed(
    strict_moto: Moto, users: dict[str, dict[str, str]], object_store: ObjectStore, without: str
) -> None:
    """A user would have to give the writer more than it needs, or find out action by action what it does."""
    properties = {
        "type": "glue",
        "glue.endpoint": strict_moto.endpoint,
        "glue.region": REGION,
        "warehouse": f"{object_store.bucket('rights')}/warehouse",
        **users[without],
        **object_store.properties,
    }
    namespace = without.replace("glue:", "without_").lower() or "enough"

    if not without:
        assert write_twice(properties, namespace) == [1, 2]
        return
    with pytest.raises(IcebergSinkError, match="AccessDenied"):
        write_twice(properties, namespace)


def test_policy_of_glue_md_has_the_actions_that_the_test_takes_away() -> None:
    """An action could stand in the page that nobody has tried to do without."""
    policy = json.loads(blocks("glue.md", "json")[0])

    assert [statement["Action"] for statement in policy["Statement"]] == [list(ACTIONS)]
