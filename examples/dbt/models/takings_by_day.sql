select day, count(*) as orders, sum(price) as takings
from {{ source('shop', 'orders') }}
group by day
