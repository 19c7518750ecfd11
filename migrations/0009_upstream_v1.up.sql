CREATE TABLE upstream_v1 (
    id uuid PRIMARY KEY,
    account uuid NOT NULL,               -- the nil id: everyone may use it
    name text NOT NULL,
    owner_id uuid NOT NULL,
    owner_name text NOT NULL,
    provider text NOT NULL,
    protocol text NOT NULL,
    base_url text NOT NULL,
    models json NOT NULL,
    enabled boolean NOT NULL,
    reason text,                         -- an operator's words on the state
    credential_header text,              -- null: it has none
    credential_origin text,
    credential_set_at timestamptz,
    deleted boolean NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE INDEX upstream_v1_name ON upstream_v1 (account, name) WHERE NOT deleted;
