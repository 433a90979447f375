-- Made by `cellblock keys` before its database had revisions.
BEGIN TRANSACTION;
CREATE TABLE api_keys (
    id VARCHAR(16) NOT NULL,
    name VARCHAR(200) NOT NULL,
    digest VARCHAR(64) NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT,
    max_sessions INTEGER,
    max_running INTEGER,
    cpu_seconds_a_day FLOAT,
    max_disk_bytes BIGINT,
    limits JSON NOT NULL,
    policy JSON NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (name),
    UNIQUE (digest)
);
INSERT INTO "api_keys" VALUES('a8ec16e53d8b','laptop','5e82580086fac7a3231d700db63c490c3e3d7a58c796695d3e6ee17c6dcaf47e',1795720198,4387720198,NULL,10,2,3600.0,NULL,'{}','{}');
INSERT INTO "api_keys" VALUES('03f713797718','class','04fdaa6c6f5340c62576ab91e3e64840982b31778b4b43516084d05c79c94d4b',1795720199,NULL,NULL,NULL,NULL,NULL,2147483648,'{"memory_bytes": 536870912, "wall_seconds": 30.0}','{"network": "none"}');
INSERT INTO "api_keys" VALUES('86823bbc9e5b','robot','f28d127f91603c0c7de2ab4f3974411a108088c41b04f76391501647a7cee7e1',1795720200,NULL,NULL,NULL,NULL,NULL,NULL,'{}','{"environment": {"TZ": "UTC"}}');
INSERT INTO "api_keys" VALUES('4ee91983ccc1','gone','294985d3bff5ed409ba260be5b04b15fe68d5d51b6b9525cd060ec88ca2b6d9d',1795720201,NULL,1795720201,NULL,NULL,NULL,NULL,'{}','{}');
CREATE TABLE usage (
    key_id VARCHAR(16) NOT NULL,
    day INTEGER NOT NULL,
    cpu_seconds FLOAT NOT NULL,
    PRIMARY KEY (key_id, day),
    FOREIGN KEY(key_id) REFERENCES api_keys (id) ON DELETE CASCADE
);
INSERT INTO "usage" VALUES('a8ec16e53d8b',20783,12.5);
COMMIT;
