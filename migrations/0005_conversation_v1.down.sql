DROP TABLE conversation_turn_v1;
DROP TABLE conversation_v1;
