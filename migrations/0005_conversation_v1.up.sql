CREATE TABLE conversation_v1 (
    id uuid PRIMARY KEY,
    account uuid NOT NULL,
    owner_id uuid NOT NULL,
    owner_name text NOT NULL,
    workload uuid NOT NULL,
    model text NOT NULL,
    title text,
    turns integer NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    deleted boolean NOT NULL,
    partition integer NOT NULL,
    sequence bigint NOT NULL
);
CREATE INDEX conversation_v1_owner ON conversation_v1 (account, owner_id, updated_at DESC, id DESC) WHERE NOT deleted;

CREATE TABLE conversation_turn_v1 (
    id uuid PRIMARY KEY,
    conversation uuid NOT NULL,
    number integer NOT NULL,
    client_turn_id text NOT NULL,
    state text NOT NULL,
    code text,                           -- why it failed
    messages json NOT NULL,              -- what the caller sent
    parameters json NOT NULL,
    answer json,                         -- the assistant's message, once whole
    partial text,                        -- what had arrived of one that is not whole
    finish_reason text,
    prompt_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    usage_estimated boolean NOT NULL,
    executor text,
    stream text,                         -- the subject of its deltas
    submitted_at timestamptz NOT NULL,
    begun_at timestamptz,
    ended_at timestamptz
);
CREATE UNIQUE INDEX conversation_turn_v1_number ON conversation_turn_v1 (conversation, number);
-- Turns that have not ended: looked through for lost executors.
CREATE INDEX conversation_turn_v1_open ON conversation_turn_v1 (submitted_at) WHERE ended_at IS NULL;
