# Work for perl: hashes, strings, regular expressions, sorting, closures, forked children. The
# program prints one digest a part.

use strict;
use warnings;
use Digest::SHA qw(sha256_hex);

my $state = 12345;

sub random {    # the results of perl's own rand may differ between machines
    my ($limit) = @_;
    $state = ($state * 1103515245 + 12345) % 2147483648;
    return int($state / 65536) % $limit;
}

# A hash of hashes of arrays that grows, shrinks and grows again.
my %tree;
for my $round (1 .. 3) {
    for my $i (1 .. 60000) {
        my $key = sprintf("%x", random(5000));
        push @{ $tree{$key}{ $i % 7 } }, "x" x random(80);
        delete $tree{ sprintf("%x", random(5000)) } if $i % 3 == 0;
    }
}
my @rows = map {
    my $outer = $_;
    map { "$outer.$_=" . join(",", map { length } @{ $tree{$outer}{$_} }) }
        sort keys %{ $tree{$outer} }
} sort keys %tree;
print "hash ", scalar(@rows), " ", sha256_hex(join("\n", @rows)), "\n";

# Forked children free the inherited data and build their own.
my @children = map {
    my $n = $_;
    my $pid = open(my $pipe, "-|") // die "fork: $!";
    if (!$pid) {
        delete $tree{$_} for grep { (length($_) + $n) % 2 } keys %tree;
        my %own = map { ("$n.$_" => [ 1 .. $_ % 50 ]) } 1 .. 30000;
        my $rows = join(",", map { "$_=@{$own{$_}}" } sort keys %own);
        print scalar(keys %tree), "+", sha256_hex($rows);
        exit 0;
    }
    $pipe;
} 1 .. 4;
for my $pipe (@children) {
    print "fork ", scalar(<$pipe>), "\n";
    close($pipe) or die "child: $?";
}

# Text is built, matched, split, replaced and reversed.
my $text = "";
$text .= join(" ", map { chr(97 + random(26)) x (1 + random(9)) } 1 .. 20) . " $_\n" for 1 .. 20000;
my %count;
$count{$1}++ while $text =~ /\b([aeiou]+)\b/g;
(my $swapped = $text) =~ s/(\w)\1+ (\w+)/$2-$1/g;
my $lines = join("\n", map { scalar reverse } reverse split(/\n/, $swapped));
print "text ", length($lines), " ",
    sha256_hex($lines . join(",", map { "$_$count{$_}" } sort keys %count)), "\n";

# Arrays are sorted by closures, and sparse ones move.
my @functions = map { my $n = $_; sub { ($n * $_[0]) % 10007 } } 1 .. 2000;
my @sorted = sort { $a->[1] <=> $b->[1] || $a->[0] <=> $b->[0] }
    map { [ $_, $functions[ $_ % 2000 ]->($_) ] } 1 .. 200000;
my @moving;
for my $i (1 .. 300000) {
    push @moving, "item$i";
    shift @moving if @moving > 5000;
    splice(@moving, random(scalar @moving), 1) if $i % 11 == 0;
}
print "sort ", scalar(@sorted), " ",
    sha256_hex(join(",", map { $_->[0] } @sorted) . join(",", @moving)), "\n";

# One string grows to 64 MiB and is then cut.
my $large = "";
$large .= sprintf("%063d\n", $_) for 1 .. 1048576;
substr($large, 1000000, 30000000) = "";
print "large ", length($large), " ", sha256_hex($large), "\n";
