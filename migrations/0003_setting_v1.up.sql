CREATE TABLE setting_v1 (
    account uuid PRIMARY KEY,            -- nil: the platform itself
    inference_enabled boolean,           -- null: never set
    changed_at timestamptz NOT NULL
);
