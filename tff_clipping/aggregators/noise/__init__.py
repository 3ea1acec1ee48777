"""Exact noise: its guarantee holds for the numbers that are released.

Some floating-point results come from one input and not from another, and so
reveal the input (Mironov 2012; Haney et al. 2022). Here every release lies on a
grid that is fixed before the data, and the noise carries each point of the grid
to each other point within 12 standard deviations.

The way of a round, with noise of standard deviation s:

  clip -> round to the grid -> sum -> add noise on the grid -> divide by P

s and P are public. Neighbours differ by one client that is added or removed;
replacing a client moves twice as much. `pipeline.build_factory` holds the order
of the steps. Where a sum may break what is assumed here, a private mean writes
no record of its mechanism, and the run counts as unchecked.

*   The clip bounds the norm of each client's value by c, in real numbers, and
    makes zero of what is not finite (`l2_clip`).
*   The step h of the grid is a power of 2 from 2^-30 s to 2^-29 s (`grid`).
    Each value is rounded towards zero, so that its norm does not grow.
*   Sums of multiples of h are exact in `float64`, up to 2^53 h. Cohorts of up
    to 2 P clients stay below it if P is at most 2^22 s / c, above which
    `private_mean.record_of` writes no record. So one client moves the sum by at
    most c. In a sum that rounds, one client more or less can turn each later
    rounding the other way: two sums of n values then differ by up to n^2 c
    times the precision, several c for 10,000 clients in `float32`. A record
    also needs a sum that does nothing else (`secure_sum.is_plain_sum`).
*   The noise is a multiple of h, and drawn in integers (`gaussian`, `table`).
*   What follows is computed from the noised sum alone.

*Theorem 1, independent noise (`gaussian`).* Let N be Gaussian of standard
deviation s, and let `round` go to the nearest multiple of h. For x on the grid,
x + round(N) = round(x + N). So noise of the law of round(N) is the Gaussian
mechanism of multiplier s / c, and then a function of its result: the guarantee
of that mechanism holds, by each accountant. The draws are discrete Gaussian,
which is not quite that law. For a standard deviation of k steps the chi-squared
distance of both is k^-4 / 288; here k is at least 2^29, so that n draws
together are within 1.1e-19 sqrt(n) in total variation. The table and the sum of
three parts add 2e-32 for each draw. For 1e13 draws (1e8 elements in 1e5 rounds)
all of it is below 4e-13, also where rounds depend on each other. A guarantee
with delta then holds with delta + 4e-13 (1 + e^epsilon); a plan with a delta
that is smaller warns.

*In shares.* Let P clients, no more and no fewer (`pipeline.check_cohort`), each
add round(N_i), where N_i has the standard deviation s / sqrt(P), on a grid
whose step g is at most 2^-16 of that, even where a secure sum chooses it
(`local_gaussian_noise` refuses others). The sum of the shares does not depend
on the values, which are on the grid. It has the law of round(N') for a Gaussian
N' of variance s^2 + (P - 1) g^2 / 12, to within 1e-22 sqrt(n) in total
variation for n elements: the characteristic function of a share is that of N_i
times sinc(g t / 2), so that the product of P of them differs from that of
round(N') in the fourth cumulant first, by (P - 1) g^4 / 120. A draw is on a
finer grid before it is rounded to g, which moves each N_i by half a step of
that grid, for all neighbours alike. So Theorem 1 holds for the sum, where each
share counts as a draw. A single share is protected by the noise of one client
alone.

*Theorem 2, correlated noise (`stream`).* The noise of a round is an exact draw
plus a weighted sum of the noises that earlier rounds added, rounded to the
grid. Let C map the noises to the draws, with s and C fixed for the whole run.
Let one client move the sums of all rounds by D, a multiple of the step of the
releases (32 h), with ||C D|| <= v: c times the sensitivity of C for the rounds
in which a sampler lets a client take part. Then all releases together are one
Gaussian mechanism of multiplier m, with 1 / m = v / s + r and r = sqrt(d)
`stream.rounding_shift` for d elements, if m is at least 1/19. (Nothing refuses
a smaller m; epsilon is above 200 there for any delta up to 0.1.) Two errors
come on top: the distance of the draws (Theorem 1), and a probability of 1e-35
for each number that is kept. What is kept tells the noise: it is secret, and a
released round is never run again from it. Noises that `float64` does not hold
on their grid have an infinite shift, which `grid.noise_factor` refuses.

Proof. Without the client, the noises would have to be N + D in place of N for
the same releases. Given the earlier releases, a round is a Gaussian mechanism
on a grid. Its value moves by D_t plus the difference of the weighted sums for N
and for N + D. With exact sums this is row t of C D. A weighted sum has two
errors: at most half a step of the draw, and that of `float64` before. The
difference of two sums has at most twice both. By the triangle inequality, all
rounds together move by at most r more, in units of s, than with exact sums.
Gaussian mechanisms that depend on each other, whose values together move by no
more than a bound, are one Gaussian mechanism that moves by the bound (Smith and
Thakurta 2022, arXiv 2210.17520). Under a banded C, taking part in a round moves
the rounds of its bands alone, and the theorem holds for these rounds. Sampling
amplifies it as a Gaussian mechanism: the function that turns the two Gaussians
into the releases with and without the client also turns a mixture of the
Gaussians into the same mixture of the releases.

*Paying for rounding.* Where rounding moves a mechanism by r, noise that is
larger by `grid.noise_factor` keeps each multiplier up to 32, and a known z.

*Theorem 3, integers (`integers`, `rotation`).* Clients round their values at
random to integers, again until the norm, checked in integers, is at most Delta.
Each adds a share of discrete Gaussian noise, of standard deviation z Delta /
sqrt(m), at least 8 (`integers.choose_grid`). If n clients come, with m <= n <=
M (`pipeline.check_cohort`, and against a real server its secure summation), the
server adds M - n shares, so that the noise does not tell n. The server knows
these shares: against it, the shares of clients count alone. The sum of m or
more shares has Renyi divergences of at most those of the Gaussian mechanism of
a multiplier z' with 1 / z' < 1 / z + e^-590, for 2^31 clients and every size
that `choose_grid` takes (Kairouz et al. 2021, Theorem 1). Draws are off by what
`integers.draw_discrete_gaussian` says. The remainder by the modulus is a
function of the sum. The rotation is public: no guarantee rests on it.

Taken for granted: the numbers that Philox makes of a secret key are random. No
cryptographer has examined Philox for this. Not hidden: how long a draw takes,
which does not depend on what is noised, and how often a client rounds again,
which does. Without a seed, no secret is in a graph: a fresh key is drawn when
the graph runs (`keys`), since a graph runs many times and is sent to others.
"""
