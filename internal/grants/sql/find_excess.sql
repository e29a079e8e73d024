WITH logs AS (
  SELECT oid, relname, relowner, relacl
  FROM pg_class
  WHERE relname = ANY (@logs) AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'troupe') AND NOT pg_has_role(relowner, 'MEMBER')
), documented AS (
  SELECT relname, attname
  FROM unnest(@column_logs::text[], @columns::text[]) AS a (relname, attname)
), held AS (
  SELECT relname, relowner, NULL::text AS attname, acl.grantee, acl.grantor, acl.privilege_type
  FROM logs, aclexplode(relacl) AS acl
  UNION ALL
  SELECT relname, relowner, attname, acl.grantee, acl.grantor, acl.privilege_type
  FROM logs
  JOIN pg_attribute ON attrelid = oid AND attnum > 0 AND NOT attisdropped,
  aclexplode(attacl) AS acl
), mine AS (
  SELECT relname, attname, grantee, privilege_type, nullif(grantor, relowner) AS grantor,
         privilege_type = 'INSERT' AND coalesce((relname, attname) IN (SELECT relname, attname FROM documented), false) AS allowed
  FROM held
  WHERE privilege_type = ANY (@privileges) AND CASE grantee WHEN 0 THEN true ELSE pg_has_role(grantee, 'MEMBER') END
)
SELECT relname::text, CASE grantee WHEN 0 THEN '' ELSE pg_get_userbyid(grantee) END::text,
       coalesce(pg_get_userbyid(nullif(grantor, 0)), '')::text, coalesce(array_agg(attname ORDER BY attname) FILTER (WHERE allowed), '{}')::text[]
FROM mine
GROUP BY relname, grantee, grantor
HAVING NOT bool_and(allowed)
UNION ALL
SELECT DISTINCT '', pg_get_userbyid(member)::text, '', '{}'::text[]
FROM pg_auth_members
WHERE roleid = (SELECT oid FROM pg_roles WHERE rolname = 'pg_write_all_data') AND pg_has_role(member, 'MEMBER') AND EXISTS (SELECT FROM logs)
ORDER BY 1, 2, 3
