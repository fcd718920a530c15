"""Predicates as users of Spark write them, on columns of every type."""

from __future__ import annotations

# Its clocks skip an hour in March and show one twice in November.
ZONE = "America/New_York"
PREDICATES = r"""
i = 1
I == 1
i <> 1
i != 1
i < 2.5
i >= -7
i !< 3
i !> 3
1 = i
2.5 < l
l = 3L
l = 9223372036854775807
l = 9007199254740993
l = 9007199254740992D
l > 9007199254740992.5
i = 3S
x = 2.5D
x = 0.1
x = 1e-1
x = 0.1BD
x = 0
x = -0.0
f = 0.1
f = 0.1F
f = '0.1'
f = 16777217
f > 1
f <= 1.5
x > 5
x >= 'NaN'
x = 'NaN'
x < double('NaN')
x <= 'NaN'
NOT x > 'NaN'
x <= f
NOT f < x
x BETWEEN -1 AND 'NaN'
x <> 1
NOT x < 1
x IN (0, 1.5)
x IN (0.1, 'NaN')
x NOT IN (0, 7)
x BETWEEN 0 AND 1e300
isnan(x)
f <=> x
x = l
l = x
price = 19.99
price = '19.99'
price = 19.990
price > 2.5D
price <= 2.5BD
price = 0.001
price < 100000000000
price IN (1.5, 7, NULL)
price NOT IN (1.5, NULL)
price BETWEEN 0.1 AND 2.5
price = i
price + 1 = 2.5
price * 2 > 3
s = 'a'
s = "a"
s <> 'a'
s > 'a'
s >= 'ü'
s <= ''
s = 'a' ''
s = 'İSTANBUL Σ'
s IN ('a', "ab")
s NOT IN ('a', 'ab')
s IN ('a', NULL)
s NOT IN ('a', NULL)
s LIKE 'a%'
s LIKE '%b'
s LIKE '%a%'
s LIKE 'a_b%'
s LIKE 'a\_b%'
s LIKE 'a/%' ESCAPE '/'
s LIKE '_'
s LIKE 'a'
s LIKE ''
s LIKE '%'
s LIKE '___ _'
s NOT LIKE 'a%'
s LIKE NULL
s = 'a\nb'
s = 'a\u000ab'
s > '\141'
s < '\341'
s < '\ud83d\ude00'
s = r'a%'
s = 'a\%'
lower(s) = 'a'
lower(s) LIKE 'i%stanbul %'
upper(s) = 'ÜNÏ 😀'
length(s) = 5
length(s) > 1
length(raw) = 2
raw = X'1F'
raw = 'a'
raw > X'1F'
raw IN (X'1F', X'')
s = X'61'
d = DATE '2026-01-02'
d = '2026-01-02'
d >= '2026-1-2'
d < DATE '1970'
d BETWEEN DATE '2026-01-01' AND '2026-12'
d > TIMESTAMP '2026-01-01 12:00:00'
d = ntz
d IN ('2026-01-02', DATE '2024-02-29')
year(d) = 2026
month(d) = 1
day(d) = 31
dayofmonth(d) = 29
quarter(d) = 4
dayofyear(d) = 60
trunc(d, 'MM') = DATE '2026-01-01'
trunc(d, 'week') = DATE '1969-12-29'
trunc(d, 'YEAR') < '2000-01-01'
d + 1 = '1970-01-01'
date_add(d, 1) > DATE '2026-01-02'
date_sub(d, 1) = DATE '2026-01-01'
to_date(ts) = '2026-01-02'
to_date(ts) = DATE '1969-12-31'
date(ntz) = '2026-11-01'
CAST(ts AS DATE) >= '2026-03-08'
ts::date < '2000-01-01'
year(ts) = 1969
year(ts) >= 2026
month(ts) = 3
hour(ts) = 23
hour(ntz) = 1
minute(ts) = 30
date_trunc('DAY', ts) = TIMESTAMP '2026-03-08'
date_trunc('month', ts) = '2026-11-01'
date_trunc('DAY', ntz) = TIMESTAMP_NTZ '2026-03-08 00:00:00'
date_trunc('week', ntz) < TIMESTAMP_NTZ '1970-01-01 00:00:00'
date_trunc('YEAR', ts) = '2026-01-01 00:00:00'
date_trunc('QUARTER', d) = '2026-01-01'
ts >= TIMESTAMP '2026-01-02 00:00:00'
ts = TIMESTAMP '2026-01-02 05:00:00Z'
ts = '2026-01-02'
ts = '2026-11-01T01:30:00'
ts = '2026-11-01 01:30:00 America/New_York'
ts > '2026-03-08 02:30:00'
ts = '2026-03-08 02:30:00'
ts = '2026-03-08 08:30:00+01:00'
ts < DATE '2026-01-02'
ts = TIMESTAMP_LTZ '1900-01-01 00:00:00'
ts >= TIMESTAMP_NTZ '2026-03-08 02:30:00'
ntz = '2026-03-08 03:30:00'
ntz = TIMESTAMP_NTZ '2026-03-08 03:30:00'
ntz = '2026-03-08 02:30:00'
ntz >= TIMESTAMP_NTZ '2026-03-08 02:30:00'
ts = TIMESTAMP_NTZ '2026-03-08 02:30:00'
ntz >= TIMESTAMP '2026-03-09 02:30:00'
cast(ntz AS timestamp) = ts
ntz = ts
ntz <> ts
ts BETWEEN '2026-01-01' AND '2026-06-01'
flag
NOT flag
!flag
flag IS TRUE
flag IS NOT TRUE
flag IS FALSE
flag IS NOT FALSE
flag IS UNKNOWN
flag IS NOT UNKNOWN
flag = TRUE
flag = 'true'
flag <> FALSE
flag AND i = 1
flag OR i = 0
NOT (flag AND i > 0)
flag = (i > 0)
(i > 0) = flag
i = 1 IS TRUE
i = 1 IN (TRUE, FALSE)
i > 0 IS NULL
1 = 1
1 = 2
TRUE
NULL
i = NULL
i <=> NULL
i <=> 1
NOT i <=> 1
i IS NULL
i IS NOT NULL
i IS DISTINCT FROM 1
i IS NOT DISTINCT FROM NULL
(i) = 3
i IN (1, NULL)
i NOT IN (1, NULL)
i IN (1, 2.5)
i IN (1, l)
i NOT IN (1, 2)
NULL IN (1)
i BETWEEN 0 AND 3
i NOT BETWEEN 0 AND 3
i BETWEEN NULL AND 3
i % 2 = 0
i % 2 = -1
l % 3L = 1
mod(i, 2) = 1
i DIV 2 = -3
i / 2 = 1.5
i - 1L = 2
i + 1L = 3
-x = 7
-(i % 5) = 2
i * 2L > 4
x + 1 > 2
x * 2 = 14
x - 0.1 = 0
2 + 3 * 4 - 1 = 13
l = i
l > i
a.b = 1
a.b > 1
A.B IS NULL
a.`c d` = 'x'
a.`c d` LIKE 'i%'
a IS NULL
a IS NOT NULL
`i` = 1 -- a comment
/* one /* in another */ */ i = 1
coalesce(i, 0) = 0
coalesce(flag, FALSE)
coalesce(i, price, 1) > 1
ifnull(s, 'none') = 'none'
nvl(x, 0) = 0
isnull(s)
isnotnull(s) and not isnull(i)
cast(i as bigint) = 1
cast(i as double) = 7
cast(i as string) = '7'
cast(i as decimal(12, 2)) = 7
cast('2026-01-02' as date) = d
i = '7'
l = ' 7 '
i > 1 AND s LIKE 'a%' OR flag
i > 1 AND (s LIKE 'a%' OR flag)
NOT i > 1 AND flag
NOT NOT i > 1
""".strip().splitlines()
