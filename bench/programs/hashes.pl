# A Perl program of hashes, arrays and strings: a log is made, parsed by regular expressions,
# indexed in hashes of hashes, reduced, sorted and written as text. A part of it stays alive.
#
# usage: hashes.pl [SIZE]   about 10 ms each; default 60
#
# PERL_HASH_SEED=0 keeps the layout of hashes equal between runs. The output depends on the argument
# only.
use strict;
use warnings;
use Digest::SHA qw(sha256_hex);

my $state = 12345;

sub random {
    my ($limit) = @_;
    $state = ($state * 1103515245 + 12345) % 2147483648;
    return $state % 99991 % $limit;
}

sub log_of {
    my ($count) = @_;
    my $text = "";
    for my $number (1 .. $count) {
        $text .= sprintf("%05d host%d GET /page/%d?user=name%d&n=%d %d \"agent %s\"\n", $number,
            random(31), random(101), random(5003), random(7), random(90000), "x" x random(60));
    }
    return $text;
}

sub one_round {
    my ($kept, $round) = @_;
    my (%pages, %users);
    for my $line (split /\n/, log_of(900)) {
        my ($number, $host, $path, $query, $bytes, $agent) =
            $line =~ m{^(\d+) (\w+) GET ([^?]+)\?(\S+) (\d+) "([^"]*)"$} or die "no line: $line";
        my %fields = map { split /=/, $_, 2 } split /&/, $query;
        my $entry = { number => $number, host => $host, bytes => $bytes, agent => $agent, %fields };
        push @{ $pages{$path}{$host} }, $entry;
        $users{ $fields{user} }{$path} += $bytes;
    }
    delete @users{ grep { $_ =~ /[13579]$/ } keys %users };
    my @lines;
    for my $path (sort keys %pages) {
        my @entries = sort { $b->{bytes} <=> $a->{bytes} || $a->{number} <=> $b->{number} }
            map { @$_ } values %{ $pages{$path} };
        push @lines, join(" ", $path, map { "$_->{host}:$_->{user}" } @entries);
    }
    for my $user (sort keys %users) {
        push @lines, "$user " . join(",", map { "$_=$users{$user}{$_}" } sort keys %{ $users{$user} });
    }
    $kept->{$round} = \%pages;
    delete $kept->{ $round - 40 + random(10) };
    (my $text = join("\n", @lines)) =~ s/host(\d+)/<$1>/g;
    return sha256_hex($text);
}

my (%kept, $digests);
for my $round (1 .. ($ARGV[0] // 60)) {
    $digests .= one_round(\%kept, $round);
}
print sha256_hex($digests), " ", scalar(keys %kept), "\n";
