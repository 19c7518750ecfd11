DROP TABLE task_v1;
