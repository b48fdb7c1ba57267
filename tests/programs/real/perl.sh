# Needs: perl
# Hashes, a fork, a pipe.
$T perl -e 'my %h; $h{$_ % 97} .= chr(65 + $_ % 26) for 1..50000; print join(",", map { length $h{$_} } sort { $a <=> $b } keys %h), "\n"; if (my $p = fork) { waitpid $p, 0; print $? >> 8, "\n" } else { exit 3 } print `echo hi`; exit 4'; echo $?
