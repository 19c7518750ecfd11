DROP TABLE parked;
DROP TABLE attempt;
DROP TABLE checkpoint;
