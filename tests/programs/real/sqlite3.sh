# Needs: sqlite3
# Makes a data base and an index.
$T sqlite3 t.db "create table t(a integer primary key, b text); with recursive c(x) as (select 1 union all select x+1 from c where x<20000) insert into t select x, hex(x*x) from c; create index i on t(b); select count(*), sum(a), max(b) from t; pragma integrity_check;"; echo $?; sqlite3 t.db "select sum(a) from t"
