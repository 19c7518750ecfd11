DROP TABLE setting_v1;
