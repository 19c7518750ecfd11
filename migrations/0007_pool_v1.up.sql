CREATE TABLE pool_v1 (
    id text PRIMARY KEY,
    description text NOT NULL,
    tier integer NOT NULL,               -- the lower first
    priority integer NOT NULL,           -- the higher first
    labels json NOT NULL,
    state text NOT NULL,
    reason text,                         -- an operator's words on the state
    deleted boolean NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
