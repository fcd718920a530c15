"""Change the table of `orders.sql` in PostgreSQL for a try-out of `stream.py`; the table is made if it is missing.

    python change.py --transactions 1000 --pause 0.02

PGHOST, PGPORT, PGDATABASE, PGUSER and PGPASSWORD say where it is. Orders come, change, get other ids and go; ids come
again, and every tenth transaction or so is rolled back. Needs psycopg2.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import psycopg2
from psycopg2.extensions import cursor

IDS = 300
CHANGES = ("insert", "insert", "update", "update", "update", "pay", "move", "delete")
LONG_NOTE = 20_000  # characters: PostgreSQL stores such a value apart from its row


def main() -> None:
    """Make the table, and change it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transactions", type=int, default=1000)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each transaction")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    chance = random.Random(arguments.seed)  # noqa: S311  # no secret
    connection = psycopg2.connect("")
    with connection, connection.cursor() as table:
        table.execute(Path(__file__).with_name("orders.sql").read_text())
    for _ in range(arguments.transactions):
        with connection.cursor() as table:
            for _ in range(chance.randint(1, 5)):
                change(table, chance)
        if chance.random() < 0.1:
            connection.rollback()
        else:
            connection.commit()
        time.sleep(arguments.pause)
    connection.close()


def change(table: cursor, chance: random.Random) -> None:
    """Change one order, if there is one of the id that is drawn."""
    id_, other = chance.randrange(IDS), chance.randrange(IDS)
    amount = None if chance.random() < 0.2 else chance.randrange(10**8) / 100
    match chance.choice(CHANGES):
        case "insert":
            values = (id_, f"customer {other}", amount, draw_note(chance))
            table.execute("INSERT INTO orders VALUES (%s, %s, %s, false, %s, now()) ON CONFLICT DO NOTHING", values)
        case "update":
            table.execute("UPDATE orders SET amount = %s, at = now() WHERE id = %s", (amount, id_))
        case "pay":
            table.execute("UPDATE orders SET paid = true, note = %s WHERE id = %s", (draw_note(chance), id_))
        case "move":
            is_free = "NOT EXISTS (SELECT FROM orders WHERE id = %s)"
            table.execute(f"UPDATE orders SET id = %s WHERE id = %s AND {is_free}", (other, id_, other))  # noqa: S608
        case "delete":
            table.execute("DELETE FROM orders WHERE id = %s", (id_,))


def draw_note(chance: random.Random) -> str | None:
    """Return no note, a short one, or a long one that does not compress to a few characters."""
    kind = chance.random()
    if kind < 0.3:
        return None
    if kind < 0.8:
        return f"note {kind} \N{SNOWFLAKE} \"'\\"
    return f"{chance.getrandbits(4 * LONG_NOTE):x}"


if __name__ == "__main__":
    main()
