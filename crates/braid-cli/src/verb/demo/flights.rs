//! Airports, the aircraft parked at them, and flights: the tables, the transaction, the check.

use std::future::ready;
use std::iter::Sum;
use std::ops::Add;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use braiddb::{Database, Error, Postcard, Schema, Table};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use pollster::block_on;
use serde::{Deserialize, Serialize};

use crate::verb::import::csv::{CsvReader, Row};

/// The world's airports: CSV with a header.
const AIRPORTS: &[u8] = include_bytes!("../../../../../examples/data/airports.csv");
/// Aircraft parked at each airport before the first flight.
const AIRCRAFT: u64 = 100;
/// Airports that one transaction of the import inserts.
const BATCH: usize = 1000;

/// An airport. Flights only read it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Airport {
    name: String,
    latitude: f64,
    longitude: f64,
}

impl Schema for Airport {
    const NAME: &'static str = "airport";
}

/// Counters of one airport, or of all. Flights change them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    aircraft: u64,
    departures: u64,
    arrivals: u64,
    kilometres: u64,
}

impl Schema for Traffic {
    const NAME: &'static str = "traffic";
}

/// The acknowledged flights of one or more rounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flights {
    pub count: u64,
    kilometres: u64,
    pub elapsed: Duration,
}

impl Add for Flights {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            kilometres: self.kilometres + other.kilometres,
            elapsed: self.elapsed + other.elapsed,
        }
    }
}

impl Sum for Flights {
    fn sum<I: Iterator<Item = Self>>(flights: I) -> Self {
        flights.fold(Self::default(), Add::add)
    }
}

/// Reads the airports: their ICAO codes, which are the keys of both tables, and their records.
fn airports() -> Result<Vec<(String, Airport)>> {
    let (mut reader, mut row) = (CsvReader::new(AIRPORTS, b',')?, Row::default());
    let mut airports = Vec::new();
    reader.read(&mut row)?;
    let header: Vec<_> = row.fields().map(<[u8]>::to_vec).collect();
    let column = |name: &str| {
        let position = header.iter().position(|column| column == name.as_bytes());
        position.with_context(|| format!("the airports have no column {name}"))
    };
    let (icao, name) = (column("icao")?, column("name")?);
    let (latitude, longitude) = (column("lat")?, column("lon")?);
    while reader.read(&mut row)? {
        let text = |column| std::str::from_utf8(row.field(column));
        let airport = Airport {
            name: text(name)?.to_owned(),
            latitude: text(latitude)?.parse()?,
            longitude: text(longitude)?.parse()?,
        };
        airports.push((text(icao)?.to_owned(), airport));
    }
    Ok(airports)
}

/// A database with the airports of the world.
pub struct World {
    db: Database,
    tables: Arc<Tables>,
}

struct Tables {
    airports: Table<str, Postcard<Airport>>,
    traffic: Table<str, Postcard<Traffic>>,
    /// The keys of both.
    codes: Vec<String>,
}

impl World {
    /// Imports the airports into a new database.
    pub async fn import(db: Database) -> Result<Self> {
        let airports = airports()?;
        let tables = Arc::new(Tables {
            airports: db.create_table("airports").await?,
            traffic: db.create_table("traffic").await?,
            codes: airports.iter().map(|(code, _)| code.clone()).collect(),
        });
        for batch in airports.chunks(BATCH) {
            let (tables, batch) = (tables.clone(), batch.to_vec());
            let traffic = Traffic { aircraft: AIRCRAFT, ..Traffic::default() };
            db.run(async move |tx| {
                for (code, airport) in &batch {
                    tx.insert(&tables.airports, code, airport).await?;
                    tx.insert(&tables.traffic, code, &traffic).await?;
                }
                Ok(())
            })
            .await?;
        }
        Ok(Self { db, tables })
    }

    /// Opens the tables of a database into which `import` imported the airports.
    pub async fn open(db: Database) -> Result<Self> {
        let tables = Tables {
            airports: db.open_table("airports").await?,
            traffic: db.open_table("traffic").await?,
            codes: airports()?.into_iter().map(|(code, _)| code).collect(),
        };
        Ok(Self { db, tables: Arc::new(tables) })
    }

    /// Closes the database.
    pub fn close(self) -> Result<()> {
        Ok(self.db.close()?)
    }

    /// The number of airports.
    pub fn airports(&self) -> u64 {
        self.tables.codes.len() as u64
    }

    /// Flies for a while, with up to `concurrency` flights in progress at the same time, and
    /// returns the flights that the database acknowledged.
    pub fn fly_for(&self, time: Duration, concurrency: usize) -> Result<Flights> {
        // Threads that only send flights and await them: one for two workers.
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = (cores / 2).clamp(1, concurrency);
        let begin = Instant::now();
        let fly = || block_on(self.fly_until(begin + time, concurrency / threads));
        let mut sum = thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(fly)).collect();
            let results = threads.into_iter().map(|thread| thread.join().expect("no panic"));
            results.sum::<Result<Flights>>()
        })?;
        sum.elapsed = begin.elapsed();
        Ok(sum)
    }

    async fn fly_until(&self, end: Instant, concurrency: usize) -> Result<Flights> {
        let flights = stream::repeat_with(|| self.fly())
            .take_while(|_| ready(Instant::now() < end))
            .buffer_unordered(concurrency)
            .try_filter_map(async |kilometres| Ok(kilometres))
            .map_ok(|kilometres| Flights { count: 1, kilometres, elapsed: Duration::ZERO });
        Ok(flights.try_fold(Flights::default(), async |sum, flight| Ok(sum + flight)).await?)
    }

    /// Flies between two random airports in one transaction, and returns the kilometres; `None`
    /// if the origin had no aircraft left.
    fn fly(&self) -> impl Future<Output = Result<Option<u64>, Error>> + use<> {
        let tables = self.tables.clone();
        let airports = tables.codes.len();
        let origin = fastrand::usize(..airports);
        let destination = (origin + fastrand::usize(1..airports)) % airports;
        self.db.run(async move |tx| {
            let Tables { airports, traffic, codes } = &*tables;
            let (origin, destination) = (codes[origin].as_str(), codes[destination].as_str());
            let from = tx.get(airports, origin).await?.ok_or(Error::KeyNotFound)?;
            let to = tx.get(airports, destination).await?.ok_or(Error::KeyNotFound)?;
            let mut departing = tx.get(traffic, origin).await?.ok_or(Error::KeyNotFound)?;
            let mut arriving = tx.get(traffic, destination).await?.ok_or(Error::KeyNotFound)?;
            if departing.aircraft == 0 {
                return Ok(None);
            }
            let kilometres = distance(&from, &to) as u64;
            departing.aircraft -= 1;
            departing.departures += 1;
            departing.kilometres += kilometres;
            arriving.aircraft += 1;
            arriving.arrivals += 1;
            tx.update(traffic, origin, &departing).await?;
            tx.update(traffic, destination, &arriving).await?;
            Ok(Some(kilometres))
        })
    }

    /// Checks that the tables hold each acknowledged flight exactly once, and every aircraft.
    pub async fn check(&self, flights: Flights) -> Result<()> {
        let tables = self.tables.clone();
        let sum = self.db.run(async move |tx| {
            let mut sum = Traffic::default();
            let mut scan = tx.scan(&tables.traffic, ..)?;
            while let Some((_, traffic)) = scan.next().await? {
                sum.aircraft += traffic.aircraft;
                sum.departures += traffic.departures;
                sum.arrivals += traffic.arrivals;
                sum.kilometres += traffic.kilometres;
            }
            Ok(sum)
        });
        let expected = Traffic {
            aircraft: AIRCRAFT * self.airports(),
            departures: flights.count,
            arrivals: flights.count,
            kilometres: flights.kilometres,
        };
        let found = sum.await?;
        ensure!(
            found == expected,
            "the database is wrong: it holds {found:?}; the acknowledged flights add up to \
             {expected:?}"
        );
        Ok(())
    }
}

/// Kilometres between two airports along the great circle.
fn distance(from: &Airport, to: &Airport) -> f64 {
    const EARTH_RADIUS_KM: f64 = 6371.0;
    let (lat1, lat2) = (from.latitude.to_radians(), to.latitude.to_radians());
    let half_lat = ((lat2 - lat1) / 2.0).sin();
    let half_lon = ((to.longitude - from.longitude).to_radians() / 2.0).sin();
    let chord = half_lat * half_lat + lat1.cos() * lat2.cos() * half_lon * half_lon;
    2.0 * EARTH_RADIUS_KM * chord.sqrt().min(1.0).asin()
}

#[cfg(test)]
mod tests {
    use braiddb::Options;

    use super::*;
    use crate::limit::{PART_SECONDS, Watched, with_limit};

    #[test]
    fn distance_between_known_airports() {
        let airports = airports().unwrap();
        assert_eq!(airports.len(), 28_298);
        let find = |code: &str| &airports.iter().find(|(icao, _)| icao == code).unwrap().1;
        let kilometres = distance(find("EDDF"), find("KJFK"));
        assert!((6180.0..6220.0).contains(&kilometres), "{kilometres}");
    }

    #[test]
    fn check_finds_a_missing_flight() {
        with_limit(PART_SECONDS, |_| {
            pollster::block_on(async {
                let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
                let world = World::import(db).await.unwrap();
                let flights = world.fly_for(Duration::from_millis(20), 16).unwrap();
                assert!(flights.count > 0);
                world.check(flights).await.unwrap();
                let lost = Flights { count: flights.count + 1, ..flights };
                let message = world.check(lost).await.unwrap_err().to_string();
                assert!(message.starts_with("the database is wrong"), "{message}");
                world.close().unwrap();
            })
        });
    }
}
