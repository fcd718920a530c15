CREATE TABLE IF NOT EXISTS suppliers (id BIGINT PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS categories (id BIGINT PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS products (
    id BIGINT PRIMARY KEY,
    supplier_id BIGINT NOT NULL REFERENCES suppliers,
    category_id BIGINT NOT NULL REFERENCES categories,
    name TEXT NOT NULL,
    price NUMERIC(10, 2) NOT NULL
);
CREATE TABLE IF NOT EXISTS customers (id BIGINT PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS addresses (
    id BIGINT PRIMARY KEY,
    customer_id BIGINT NOT NULL REFERENCES customers,
    street TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS orders (
    id BIGINT PRIMARY KEY,
    customer_id BIGINT NOT NULL REFERENCES customers,
    address_id BIGINT REFERENCES addresses ON DELETE SET NULL,
    at TIMESTAMPTZ NOT NULL,
    pieces BIGINT NOT NULL  -- of all its items, when a transaction ends
);
CREATE TABLE IF NOT EXISTS order_items (
    order_id BIGINT REFERENCES orders ON DELETE CASCADE,
    line BIGINT,
    product_id BIGINT NOT NULL REFERENCES products,
    quantity BIGINT NOT NULL,
    PRIMARY KEY (order_id, line)
);
CREATE TABLE IF NOT EXISTS payments (
    id BIGINT PRIMARY KEY,
    order_id BIGINT NOT NULL REFERENCES orders,
    amount NUMERIC(10, 2) NOT NULL,
    at TIMESTAMPTZ NOT NULL
);
CREATE TABLE IF NOT EXISTS shipments (
    id BIGINT PRIMARY KEY,
    order_id BIGINT NOT NULL REFERENCES orders,
    address_id BIGINT NOT NULL REFERENCES addresses,
    at TIMESTAMPTZ NOT NULL
);
CREATE TABLE IF NOT EXISTS reviews (
    id BIGINT PRIMARY KEY,
    customer_id BIGINT NOT NULL REFERENCES customers,
    product_id BIGINT NOT NULL REFERENCES products,
    note TEXT
);
-- A change of a row then tells its long values, too, which PostgreSQL stores apart, where the change left them alone.
ALTER TABLE reviews REPLICA IDENTITY FULL;
