DROP TABLE pool_v1;
