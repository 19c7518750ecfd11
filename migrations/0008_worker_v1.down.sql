DROP TABLE worker_v1;
