DROP TABLE account_key_v1;
DROP TABLE account_member_v1;
DROP TABLE account_v1;
