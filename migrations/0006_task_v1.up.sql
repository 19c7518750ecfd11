CREATE TABLE task_v1 (
    id uuid PRIMARY KEY,
    account uuid NOT NULL,
    owner_id uuid NOT NULL,
    owner_name text NOT NULL,
    kind text NOT NULL,
    mode text NOT NULL,
    run_mode text NOT NULL,
    priority integer NOT NULL,           -- 0 to 9, the higher first
    streaming boolean NOT NULL,
    idempotent boolean NOT NULL,
    model text,
    workload uuid,
    upstream uuid,
    state text NOT NULL,
    cancel_waits boolean NOT NULL,
    wanted_pool text,
    pool text,
    worker text,                         -- of the last lease
    incarnation uuid,
    epoch bigint,
    attempt integer NOT NULL,            -- leases so far
    redemptions integer NOT NULL,
    retries integer NOT NULL,
    code text,                           -- why it failed, was refused or became unknown
    upstream_status integer,
    upstream_id text,
    evidence text,                       -- what an unknown submission is known by
    resolution text,
    reason text,                         -- an operator's words
    payload_characters bigint NOT NULL,
    result_characters bigint,
    prompt_tokens bigint,
    completion_tokens bigint,
    usage_estimated boolean,
    accepted_at timestamptz NOT NULL,
    queued_at timestamptz,
    leased_at timestamptz,
    lease_expires_at timestamptz,        -- as granted; renewals are not events
    redeemed_at timestamptz,
    start_deadline timestamptz,
    retry_at timestamptz,
    unknown_since timestamptz,
    ended_at timestamptz,
    updated_at timestamptz NOT NULL,
    partition integer NOT NULL,
    sequence bigint NOT NULL
);
CREATE INDEX task_v1_account ON task_v1 (account, accepted_at DESC, id DESC);
CREATE INDEX task_v1_state ON task_v1 (account, state, accepted_at DESC, id DESC);
-- What has not ended: the leases role builds its index from it.
CREATE INDEX task_v1_open ON task_v1 (accepted_at) WHERE ended_at IS NULL;
CREATE INDEX task_v1_unknown ON task_v1 (unknown_since) WHERE unknown_since IS NOT NULL;
CREATE INDEX task_v1_pool ON task_v1 (pool) WHERE ended_at IS NULL;
