"""Change the ten tables of `shop.sql` in PostgreSQL for a try-out of `stream.py`; they are made if they are missing.

    python change.py --transactions 1000 --pause 0.02

PGHOST, PGPORT, PGDATABASE, PGUSER and PGPASSWORD say where they are. Ids are drawn, and come again; what a foreign key
or a primary key refuses is undone. An order has as many pieces as its items when a transaction ends, and not always
before. Needs psycopg2.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import psycopg2
from psycopg2.extensions import cursor

IDS = {
    "supplier": 5,
    "category": 5,
    "product": 20,
    "customer": 30,
    "address": 40,
    "order": 60,
    "line": 4,
    "payment": 60,
    "shipment": 40,
    "review": 40,
}
LONG_NOTE = 20_000  # characters: PostgreSQL stores such a value apart from its row
# The statements of each change.
CHANGES = {
    "offer a product": (
        "INSERT INTO suppliers VALUES (%(supplier)s, %(name)s) ON CONFLICT DO NOTHING",
        "INSERT INTO categories VALUES (%(category)s, %(name)s) ON CONFLICT DO NOTHING",
        "INSERT INTO products VALUES (%(product)s, %(supplier)s, %(category)s, %(name)s, %(amount)s)",
    ),
    "sign up": (
        "INSERT INTO customers VALUES (%(customer)s, %(name)s)",
        "INSERT INTO addresses VALUES (%(address)s, %(customer)s, %(name)s)",
    ),
    "order": (
        "INSERT INTO orders VALUES (%(order)s, %(customer)s, NULL, now(), 1)",
        "INSERT INTO order_items VALUES (%(order)s, %(line)s, %(product)s, 1)",
    ),
    "order more": (
        "INSERT INTO order_items VALUES (%(order)s, %(line)s, %(product)s, 2)",
        "UPDATE orders SET pieces = pieces + 2 WHERE id = %(order)s",
    ),
    "pay": ("INSERT INTO payments VALUES (%(payment)s, %(order)s, %(amount)s, now())",),
    "ship": (
        "UPDATE orders SET address_id = %(address)s WHERE id = %(order)s",
        "INSERT INTO shipments VALUES (%(shipment)s, %(order)s, %(address)s, now())",
    ),
    "review": ("INSERT INTO reviews VALUES (%(review)s, %(customer)s, %(product)s, %(note)s)",),
    "review another": ("UPDATE reviews SET product_id = %(product)s WHERE id = %(review)s",),
    "hand over": ("UPDATE orders SET customer_id = %(customer)s, address_id = NULL WHERE id = %(order)s",),
    "exchange": ("UPDATE order_items SET product_id = %(product)s WHERE order_id = %(order)s",),
    "buy elsewhere": ("UPDATE products SET supplier_id = %(supplier)s, price = %(amount)s WHERE id = %(product)s",),
    "renumber": ("UPDATE customers SET id = %(customer)s WHERE id = %(other)s",),
    "cancel": (
        "DELETE FROM shipments WHERE order_id = %(order)s",
        "DELETE FROM payments WHERE order_id = %(order)s",
        "DELETE FROM orders WHERE id = %(order)s",  # and its items
    ),
    "forget a customer": (
        "DELETE FROM reviews WHERE customer_id = %(customer)s",
        "DELETE FROM addresses WHERE customer_id = %(customer)s",  # orders then have none
        "DELETE FROM customers WHERE id = %(customer)s",
    ),
    "withdraw a product": (
        "DELETE FROM reviews WHERE product_id = %(product)s",
        "DELETE FROM products WHERE id = %(product)s",
    ),
    "leave a supplier": ("DELETE FROM suppliers WHERE id = %(supplier)s",),
}


def main() -> None:
    """Make the tables, and change them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transactions", type=int, default=1000)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each transaction")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    chance = random.Random(arguments.seed)  # noqa: S311  # no secret
    connection = psycopg2.connect("")
    with connection, connection.cursor() as tables:
        tables.execute(Path(__file__).with_name("shop.sql").read_text())
    for _ in range(arguments.transactions):
        with connection.cursor() as tables:
            for _ in range(chance.randint(1, 8)):
                change(tables, chance)
        if chance.random() < 0.1:
            connection.rollback()
        else:
            connection.commit()
        time.sleep(arguments.pause)
    connection.close()


def change(tables: cursor, chance: random.Random) -> None:
    """Make one change, as a whole or not at all."""
    values: dict[str, object] = {name: chance.randrange(count) for name, count in IDS.items()}
    values["other"] = chance.randrange(IDS["customer"])
    values["amount"] = chance.randrange(10**6) / 100
    values["name"] = f"name {chance.randrange(1000)} \N{SNOWFLAKE} \"'\\"
    values["note"] = chance.choice((None, "good", f"{chance.getrandbits(4 * LONG_NOTE):x}"))
    tables.execute("SAVEPOINT change")
    try:
        for statement in chance.choice([*CHANGES.values()]):
            tables.execute(statement, values)
    except psycopg2.IntegrityError:
        tables.execute("ROLLBACK TO SAVEPOINT change")


if __name__ == "__main__":
    main()
