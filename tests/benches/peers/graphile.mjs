// graphile-worker: jobs added with addJob, run by one pool of workers, counted once their row is deleted.

import pg from 'pg';
import { Cycle, main, openReader, PRODUCER_CONNECTIONS, readArguments, report, tidy, versionOf } from './cycle.mjs';

// Read when the package is loaded: no line is logged for each job.
process.env.NO_LOG_SUCCESS = '1';
const { Logger, makeWorkerUtils, run } = await import('graphile-worker');

const TASK = 'nothing';

/** Its settings by mode. */
const MODES = {
  // As it comes: each worker fetches its next job and deletes its last one with statements of their own.
  default: () => ({}),
  // The guide on performance: jobs are fetched for all workers together, and completions that arrive within one turn
  // of the event loop share a statement. First with the size that it starts from.
  'local-queue': (workers) => ({ localQueue: { size: workers + 1 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 }),
  // With the size that the guide's own figures were measured with.
  'local-queue-500': () => ({ localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 }),
};

/**
 * A client that tells when the statement that deletes completed jobs has been answered, which PostgreSQL does after
 * its commit. The package's own event job:complete comes before that statement is even sent.
 */
function observing(completed) {
  return class extends pg.Client {
    query(config, ...rest) {
      const answer = super.query(config, ...rest);
      if (typeof config === 'object' && /^complete_jobs?\//.test(config.name ?? '')) {
        const ids = config.values[0];
        answer.then(
          () => completed(Array.isArray(ids) ? ids : [ids]),
          () => {},
        );
      }
      return answer;
    }
  };
}

await main(async () => {
  const { url, workers, jobs, modes } = readArguments(Object.keys(MODES));
  const reader = await openReader(url);
  const logger = new Logger(() => (level, message) => {
    if (level === 'error' || level === 'warning') console.error(`graphile-worker ${level}: ${message}`);
  });

  const measure = async (mode, schema) => {
    const tuning = MODES[mode](workers);
    const maxPoolSize = Math.max(workers + 2, 10);
    const producers = new pg.Pool({ connectionString: url, max: Math.min(2 * workers, PRODUCER_CONNECTIONS) });
    const pgPool = new pg.Pool({
      connectionString: url,
      max: maxPoolSize,
      Client: observing((ids) => cycle.completed(ids)),
    });
    for (const pool of [producers, pgPool]) {
      pool.on('error', (error) => console.error(error));
      pool.on('connect', (client) => client.on('error', (error) => console.error(error)));
    }
    const utils = await makeWorkerUtils({ pgPool: producers, schema, logger });
    await utils.migrate();
    const cycle = new Cycle({
      workers,
      jobs,
      add: async () => (await utils.addJob(TASK, {})).id,
      tidy: () => tidy(reader, schema),
      visible: async (ids) => {
        const { rows } = await reader.query(`SELECT count(*)::int AS left FROM ${schema}._private_jobs WHERE id = ANY($1)`, [ids]);
        return rows[0].left === 0;
      },
    });
    const runner = await run({
      pgPool,
      logger,
      noHandleSignals: true,
      taskList: { [TASK]: async () => {} },
      parsedCronItems: [],
      preset: { worker: { schema, concurrentJobs: workers, maxPoolSize, ...tuning } },
    });
    runner.promise.catch((error) => cycle.failed(error));
    const figures = await cycle.run();
    const { rows } = await reader.query(`SELECT count(*)::int AS left FROM ${schema}._private_jobs`);
    if (rows[0].left !== 0) throw new Error(`${rows[0].left} jobs are left`);
    await runner.stop();
    await utils.release();
    await Promise.all([producers.end(), pgPool.end()]);
    return { figures, options: { concurrentJobs: workers, maxPoolSize, ...tuning } };
  };

  await report({ peer: 'graphile-worker', version: versionOf('graphile-worker'), reader, workers, jobs, modes, measure });
  await reader.end();
});
