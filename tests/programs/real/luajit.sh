# Needs: luajit
# Compiles at run time, switches stacks.
$T luajit -e 'local t = 0 for i = 1, 3000000 do t = (t * 31 + i) % 1000003 end print(t) local co = coroutine.wrap(function() for i = 1, 5 do coroutine.yield(i) end end) print(co(), co(), co()) print(pcall(error, "x"))'; echo $?
