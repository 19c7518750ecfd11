// pg-boss: jobs added with send, run by work(), counted once their state is completed.

import { PgBoss } from 'pg-boss';
import { Cycle, main, openReader, PRODUCER_CONNECTIONS, readArguments, report, tidy, versionOf } from './cycle.mjs';

const QUEUE = 'nothing';
/** The least that pg-boss allows. It only matters where a notification came too early. */
const POLL = { pollingIntervalSeconds: 0.5, notifyPollingIntervalSeconds: 0.5 };

/** How `workers` jobs run at a time, by mode. With notifications throughout: without, a worker sleeps after each job. */
const MODES = {
  // Workers that each take, run and complete one job at a time.
  single: (workers) => ({ localConcurrency: workers, batchSize: 1 }),
  // One worker that takes up to `workers` jobs together and runs them side by side, each with an outcome of its own.
  // Full batches follow each other at once.
  batch: (workers) => ({ localConcurrency: 1, batchSize: workers, burstWhenBatchFull: true, perJobResults: true }),
};

const handlers = {
  one: async () => {},
  each: (jobs) => Promise.all(jobs.map(async ({ id }) => ({ id, status: 'completed' }))),
};

/**
 * Tells of completions when the statement that made them has been answered, which PostgreSQL does after its commit.
 * That statement is the only one that returns the ids of jobs it set to completed; the package has no event for it.
 */
function observe(db, completed) {
  const execute = db.executeSql.bind(db);
  db.executeSql = async (text, ...rest) => {
    const result = await execute(text, ...rest);
    const ids = result?.rows?.[0]?.ids;
    if (Array.isArray(ids) && text.includes("state = 'completed',")) completed(ids);
    return result;
  };
}

await main(async () => {
  const { url, workers, jobs, modes: asked } = readArguments(Object.keys(MODES));
  // A batch of one job is no batch.
  const modes = workers === 1 ? ['single'] : asked;
  const reader = await openReader(url);

  const open = (schema, options) => {
    const boss = new PgBoss({ connectionString: url, schema, ...options });
    boss.on('error', (error) => console.error(error));
    boss.on('warning', (warning) => console.error(`pg-boss warning: ${warning.message}`));
    return boss;
  };

  const measure = async (mode, schema) => {
    const work = { ...MODES[mode](workers), ...POLL };
    const max = Math.max(work.localConcurrency + 2, 10);
    const boss = open(schema, { max, createSchema: false, useListenNotify: true });
    observe(boss.getDb(), (ids) => cycle.completed(ids));
    await boss.start();
    await boss.createQueue(QUEUE, { notify: true });
    // As in a process of its own that only adds: connections that no worker has to wait for.
    const sender = open(schema, {
      max: Math.min(2 * workers, PRODUCER_CONNECTIONS),
      migrate: false,
      supervise: false,
      schedule: false,
    });
    await sender.start();
    const cycle = new Cycle({
      workers,
      jobs,
      add: () => sender.send(QUEUE, {}),
      tidy: () => tidy(reader, schema),
      visible: async (ids) => {
        const { rows } = await reader.query(
          `SELECT count(*)::int AS done FROM ${schema}.job WHERE name = $1 AND id = ANY($2) AND state = 'completed'`,
          [QUEUE, ids],
        );
        return rows[0].done === ids.length;
      },
    });
    await boss.work(QUEUE, work, work.perJobResults ? handlers.each : handlers.one);
    const figures = await cycle.run();
    const { rows } = await reader.query(
      `SELECT count(*)::int AS jobs, count(*) FILTER (WHERE state = 'completed')::int AS done FROM ${schema}.job WHERE name = $1`,
      [QUEUE],
    );
    if (rows[0].jobs !== cycle.added || rows[0].done !== cycle.added) {
      throw new Error(`${cycle.added} jobs added, ${rows[0].jobs} found, ${rows[0].done} completed`);
    }
    await sender.stop({ graceful: false });
    await boss.stop({ graceful: false });
    return { figures, options: { ...work, max, useListenNotify: true, notify: true } };
  };

  await report({ peer: 'pg-boss', version: versionOf('pg-boss'), reader, workers, jobs, modes, measure });
  await reader.end();
});
