//! Airports, the aircraft parked at them, and flights: the tables, the transaction, the check.

use std::future::ready;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use braiddb::{Database, Error, Postcard, Schema, Table};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};

use super::interruption::Interruption;
use crate::verb::import::csv::{CsvReader, Row};

/// The world's airports: CSV with a header.
const AIRPORTS: &[u8] = include_bytes!("../../../data/airports.csv");
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

/// Acknowledged flights.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flights {
    pub count: u64,
    pub kilometres: u64,
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
    interruption: Interruption,
}

struct Tables {
    airports: Table<str, Postcard<Airport>>,
    traffic: Table<str, Postcard<Traffic>>,
    /// The keys of both.
    codes: Vec<String>,
}

impl World {
    /// Opens the tables, or creates empty ones.
    pub async fn open(db: Database, interruption: Interruption) -> Result<Self> {
        let tables = Tables {
            airports: db.open_or_create_table("airports").await?,
            traffic: db.open_or_create_table("traffic").await?,
            codes: airports()?.into_iter().map(|(code, _)| code).collect(),
        };
        Ok(Self { db, tables: Arc::new(tables), interruption })
    }

    /// Imports the airports, and parks aircraft at them.
    pub async fn import(&self) -> Result<()> {
        for batch in airports()?.chunks(BATCH) {
            self.interruption.check()?;
            let (tables, batch) = (self.tables.clone(), batch.to_vec());
            let traffic = Traffic { aircraft: AIRCRAFT, ..Traffic::default() };
            let inserted = self.db.run(async move |tx| {
                for (code, airport) in &batch {
                    tx.insert(&tables.airports, code, airport).await?;
                    tx.insert(&tables.traffic, code, &traffic).await?;
                }
                Ok(())
            });
            inserted.await?;
        }
        Ok(())
    }

    /// Closes the database.
    pub fn close(self) -> Result<()> {
        Ok(self.db.close()?)
    }

    /// The number of airports.
    pub fn airports(&self) -> u64 {
        self.tables.codes.len() as u64
    }

    /// Flies until `end`, with up to `concurrency` flights in progress at the same time, and adds
    /// the acknowledged flights to `sum`.
    ///
    /// # Errors
    /// Fails if a flight fails, or after an interruption.
    pub async fn fly_until(
        &self,
        end: Instant,
        concurrency: usize,
        sum: &mut Flights,
    ) -> Result<()> {
        let mut flights = stream::repeat_with(|| self.fly())
            .take_while(|_| ready(Instant::now() < end && !self.interruption.has_arrived()))
            .buffer_unordered(concurrency);
        while let Some(kilometres) = flights.try_next().await? {
            sum.count += u64::from(kilometres.is_some());
            sum.kilometres += kilometres.unwrap_or(0);
        }
        self.interruption.check()
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
            let from =
                tx.get(airports, origin).await?.ok_or_else(|| airports.key_not_found(origin))?;
            let to = tx
                .get(airports, destination)
                .await?
                .ok_or_else(|| airports.key_not_found(destination))?;
            let mut departing =
                tx.get(traffic, origin).await?.ok_or_else(|| traffic.key_not_found(origin))?;
            let mut arriving = tx
                .get(traffic, destination)
                .await?
                .ok_or_else(|| traffic.key_not_found(destination))?;
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
    use std::time::Duration;

    use braiddb::Options;
    use pollster::block_on;

    use super::*;
    use crate::limit::{PART_SECONDS, Watched, with_limit};

    const ROUND: Duration = Duration::from_millis(20);

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
            block_on(async {
                let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
                let world = World::open(db, Interruption::default()).await.unwrap();
                world.import().await.unwrap();
                let (end, mut flights) = (Instant::now() + ROUND, Flights::default());
                world.fly_until(end, 16, &mut flights).await.unwrap();
                assert!(flights.count > 0);
                world.check(flights).await.unwrap();
                flights.count += 1;
                let message = world.check(flights).await.unwrap_err().to_string();
                assert!(message.starts_with("the database is wrong"), "{message}");
                world.close().unwrap();
            });
        });
    }
}
