DROP TABLE upstream_v1;
