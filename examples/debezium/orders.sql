CREATE TABLE IF NOT EXISTS orders (
    id BIGINT PRIMARY KEY,
    customer TEXT NOT NULL,
    amount NUMERIC(10, 2),
    paid BOOLEAN NOT NULL,
    note TEXT,
    at TIMESTAMPTZ NOT NULL
);
-- Every change then tells the whole row: also long values that PostgreSQL stores apart and that the change left alone.
ALTER TABLE orders REPLICA IDENTITY FULL;
