CREATE TABLE account_v1 (
    id uuid PRIMARY KEY,                 -- nil: the platform itself
    name text NOT NULL,
    created_at timestamptz NOT NULL
);

CREATE TABLE account_member_v1 (
    account uuid NOT NULL,
    principal uuid NOT NULL,
    name text NOT NULL,
    roles json NOT NULL,                 -- list of role names
    added_at timestamptz NOT NULL,
    PRIMARY KEY (account, principal)
);

CREATE TABLE account_key_v1 (
    id uuid PRIMARY KEY,
    account uuid NOT NULL,
    principal uuid NOT NULL,
    label text NOT NULL,
    hash text NOT NULL,                  -- SHA-256 of the secret, hex
    roles json NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    issued_at timestamptz NOT NULL
);
CREATE UNIQUE INDEX account_key_v1_hash ON account_key_v1 (hash);
CREATE INDEX account_key_v1_account ON account_key_v1 (account, issued_at);
