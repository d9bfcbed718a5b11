//! Airports and the flights between them: the records of the `airports` workload, its transaction,
//! and the check for lost flights.

use std::path::Path;
use std::sync::Arc;

use braiddb::{Database, Postcard, Schema, Table, Transaction};
use serde::{Deserialize, Serialize};

use crate::engine::drive::Procedure;
use crate::error::Error;
use crate::random::Uniform;
use crate::workload::missing_record;

/// An airport, with the columns of `airports.csv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Airport {
    icao: String,
    iata: String,
    name: String,
    city: String,
    subd: String,
    country: String,
    elevation: f64,
    lat: f64,
    lon: f64,
    tz: String,
    lid: String,
}

impl Schema for Airport {
    const NAME: &'static str = "airport";
}

/// The traffic of an airport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Traffic {
    departures: u64,
    arrivals: u64,
    kilometres: u64,
}

impl Schema for Traffic {
    const NAME: &'static str = "traffic";
}

/// The two tables, keyed by ICAO code, and the codes.
#[derive(Clone)]
pub(crate) struct Tables {
    airports: Table<str, Postcard<Airport>>,
    traffic: Table<str, Postcard<Traffic>>,
    codes: Arc<[String]>,
}

/// The number of records that one importing transaction inserts.
const BATCH: usize = 1_000;

/// Reads the airports from a CSV file with a header.
pub(crate) fn read(path: &Path) -> Result<Vec<Airport>, Error> {
    let file = std::fs::File::open(path).map_err(Error::file(path))?;
    let mut reader = csv::Reader::from_reader(std::io::BufReader::new(file));
    let wrong = |error: csv::Error| Error::Input {
        path: path.to_owned(),
        line: error.position().map_or(1, csv::Position::line),
        reason: error.to_string(),
    };
    reader.deserialize().collect::<Result<_, _>>().map_err(wrong)
}

impl Tables {
    /// Opens the tables of a database with imported airports.
    pub(crate) fn open(database: &Database, airports: &[Airport]) -> Result<Self, Error> {
        pollster::block_on(async {
            Ok(Self {
                airports: database.open_or_create_table("airports").await?,
                traffic: database.open_or_create_table("traffic").await?,
                codes: airports.iter().map(|airport| airport.icao.clone()).collect(),
            })
        })
    }

    /// Imports `airports`, a thousand in each transaction.
    pub(crate) fn import(&self, database: &Database, airports: &[Airport]) -> Result<(), Error> {
        for batch in airports.chunks(BATCH) {
            let (tables, batch) = (self.clone(), batch.to_vec());
            database.run_blocking(async move |tx: &Transaction| {
                for airport in &batch {
                    tx.insert(&tables.airports, &airport.icao, airport).await?;
                    tx.insert(&tables.traffic, &airport.icao, &Traffic::default()).await?;
                }
                Ok::<_, braiddb::Error>(())
            })?;
        }
        Ok(())
    }

    /// Returns a procedure that flies.
    pub(crate) fn flights(&self, seed: u64) -> Flights {
        assert!(self.codes.len() > 1, "a flight is from one airport to another");
        Flights { tables: self.clone(), uniform: Uniform::below(self.codes.len() as u64, seed) }
    }

    /// Returns the sum of all traffic, read in one transaction.
    pub(crate) fn total(&self, database: &Database) -> Result<Traffic, Error> {
        let traffic = self.traffic.clone();
        let total = database.run_blocking(async move |tx: &Transaction| {
            let mut total = Traffic::default();
            let mut scan = tx.scan(&traffic, ..)?;
            while let Some((_, airport)) = scan.next().await? {
                total.departures += airport.departures;
                total.arrivals += airport.arrivals;
                total.kilometres += airport.kilometres;
            }
            Ok::<_, braiddb::Error>(total)
        })?;
        Ok(total)
    }
}

impl Traffic {
    /// Fails if a total does not match this number of committed flights.
    pub(crate) fn check(self, flights: u64, when: &str) -> Result<(), Error> {
        if (self.departures, self.arrivals) == (flights, flights) {
            return Ok(());
        }
        let Self { departures, arrivals, .. } = self;
        Err(Error::Wrong(format!(
            "{flights} flights were committed, but {when} there are {departures} departures and \
             {arrivals} arrivals"
        )))
    }
}

/// A flight between two uniformly drawn airports: reads both, and counts the flight at both.
#[derive(Clone)]
pub(crate) struct Flights {
    tables: Tables,
    uniform: Uniform,
}

impl Procedure for Flights {
    /// Origin and destination, which differ.
    type Input = (u64, u64);

    fn draw(&mut self) -> (u64, u64) {
        let airports = self.tables.codes.len() as u64;
        let origin = self.uniform.record();
        let apart = 1 + self.uniform.record() % (airports - 1);
        (origin, (origin + apart) % airports)
    }

    async fn run(&self, tx: &Transaction, input: &(u64, u64)) -> Result<(), braiddb::Error> {
        let Tables { airports, traffic, codes } = &self.tables;
        let (origin, destination) = (&codes[input.0 as usize], &codes[input.1 as usize]);
        let from = tx.get(airports, origin.as_str()).await?.ok_or_else(missing_record)?;
        let to = tx.get(airports, destination.as_str()).await?.ok_or_else(missing_record)?;
        let kilometres = distance(&from, &to) as u64;
        let mut departing = tx.get(traffic, origin.as_str()).await?.ok_or_else(missing_record)?;
        departing.departures += 1;
        departing.kilometres += kilometres;
        tx.update(traffic, origin.as_str(), &departing).await?;
        let mut arriving =
            tx.get(traffic, destination.as_str()).await?.ok_or_else(missing_record)?;
        arriving.arrivals += 1;
        arriving.kilometres += kilometres;
        tx.update(traffic, destination.as_str(), &arriving).await
    }
}

/// Returns the kilometres along the great circle.
fn distance(from: &Airport, to: &Airport) -> f64 {
    const EARTH_RADIUS_KM: f64 = 6_371.0;
    let (lat1, lat2) = (from.lat.to_radians(), to.lat.to_radians());
    let half_lat = ((lat2 - lat1) / 2.0).sin();
    let half_lon = ((to.lon - from.lon).to_radians() / 2.0).sin();
    let chord = half_lat * half_lat + lat1.cos() * lat2.cos() * half_lon * half_lon;
    2.0 * EARTH_RADIUS_KM * chord.sqrt().min(1.0).asin()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_airport_is_read_and_a_known_distance_is_right() {
        let airports = read(&super::super::airports::source_tree_file()).unwrap();
        assert_eq!(airports.len(), 28_298);
        let find = |icao: &str| airports.iter().find(|airport| airport.icao == icao).unwrap();
        let kilometres = distance(find("EDDF"), find("KJFK"));
        assert!((6_180.0..6_220.0).contains(&kilometres), "{kilometres}");
        assert!(distance(find("EDDF"), find("EDDF")) < 1e-6);
    }

    #[test]
    fn an_invalid_file_is_reported_with_its_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "icao,iata\nA,B\n").unwrap();
        assert!(matches!(read(file.path()), Err(Error::Input { line: 2, .. })));
        assert!(matches!(read(Path::new("/nowhere/at/all")), Err(Error::File { .. })));
    }
}
