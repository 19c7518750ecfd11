DROP TABLE workload_list_v1;
