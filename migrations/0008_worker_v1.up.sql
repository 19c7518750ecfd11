CREATE TABLE worker_v1 (
    id text PRIMARY KEY,
    pool text NOT NULL,
    incarnation uuid NOT NULL,
    protocol integer NOT NULL,
    version text NOT NULL,
    capabilities json NOT NULL,
    slots integer NOT NULL,
    state text NOT NULL,
    draining boolean NOT NULL,
    started_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE INDEX worker_v1_pool ON worker_v1 (pool);
