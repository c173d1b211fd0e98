CREATE TABLE orders (id text PRIMARY KEY);
CREATE TABLE payments (id bigserial PRIMARY KEY, order_id text NOT NULL);
