-- name: CreateOrder :exec
INSERT INTO orders (id) VALUES ($1);

-- name: CreatePayment :exec
INSERT INTO payments (order_id) VALUES ($1);
